"""What a run says of its sessions and of its files, at the start and at the end."""

import json
from pathlib import Path

from support.eval_command import eval_run, task_file


def test_a_resumed_run_says_what_was_done_and_which_part_its_wall_time_is_of(
    tmp_path: Path,
) -> None:
    task_file(tmp_path, [{}] * 5)
    first = eval_run(tmp_path, "--limit", "3", "--resume")

    resumed = eval_run(tmp_path, "--resume")

    assert first.code == resumed.code == 0, first.err + resumed.err
    assert "resuming" not in first.err
    assert "of this session" not in first.out
    assert resumed.err.count("resuming: 3 of 5 rollouts are done\n") == 1
    (told,) = [line for line in resumed.out.splitlines() if line.startswith("wall time:")]
    assert told.endswith("of this session (2 rollouts of 5)")


def test_the_captures_of_a_run_are_named_with_its_files(tmp_path: Path) -> None:
    task_file(tmp_path, [{}])
    folder = tmp_path / "captures"
    capture = ("++observability_enabled=true", f"++model_call_capture_dir={folder}")

    told = eval_run(tmp_path, *capture)
    machine = eval_run(tmp_path, *capture, "--overwrite", "--json")
    without = eval_run(tmp_path, "--overwrite")

    assert f"captures:  {folder}\n" in told.out
    assert json.loads(machine.out)["files"]["model_call_capture_dir"] == str(folder)
    assert "captures:" not in without.out
