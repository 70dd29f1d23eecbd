"""`gym capture` on directories with damage: each command says what is wrong, and goes on."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import RolloutId

GYM = str(Path(sys.executable).parent / "gym")
_SETPRIV = shutil.which("setpriv")
# The superuser reads every file, unless it is told not to.
_PLAIN = [] if os.geteuid() else [str(_SETPRIV), "--inh-caps=-all", "--bounding-set=-all"]

needs_permissions = pytest.mark.skipif(
    os.geteuid() == 0 and _SETPRIV is None, reason="the superuser may read everything"
)


def _gym(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_PLAIN, GYM, "capture", *arguments, "--dir", "calls"],
        cwd=cwd,
        env={**os.environ, "XDG_STATE_HOME": str(cwd / "state")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _row(number: int) -> bytes:
    row = {
        "model_call_id": f"c{number}",
        "dialect": "chat",
        "completed_at": 1786032154.5 + number,
        "status_code": 200,
        "request": {"messages": [{"role": "user", "content": f"q{number}"}]},
        "response": {"choices": [{"message": {"content": f"a{number}"}}]},
    }
    return json.dumps(row).encode()


@pytest.fixture
def calls(tmp_path: Path) -> Generator[Path]:
    """A directory with one rollout of each kind of trouble, and one without."""
    folder = tmp_path / "calls"
    store = CaptureStore(folder)
    for rollout in ("whole", "torn", "zeros", "fused", "unended", "cleared"):
        for number in range(3):
            store.submit(Row(RolloutId(rollout), f"c{number}", _row(number))).result()
    store.clear(["cleared"])
    store.close()
    with (folder / "torn.capture.jsonl").open("ab") as file:
        file.write(_row(9)[:70])
    (folder / "zeros.capture.jsonl").write_bytes(_row(0) + b"\n" + b"\0" * 512 + _row(1) + b"\n")
    (folder / "fused.capture.jsonl").write_bytes(b"".join(map(_row, range(3))) + b"\n")
    (folder / "unended.capture.jsonl").write_bytes(b"\n".join(map(_row, range(3))))
    foreign = (
        b'no json\n[1]\n{"completed_at": 1e300}\n{"completed_at": 1786032154960}\n{"response": 3}\n'
    )
    (folder / "foreign.capture.jsonl").write_bytes(foreign)
    (folder / "a folder.capture.jsonl").mkdir()
    (folder / "notes.txt").write_text("mine")
    yield folder
    for path in (folder, *folder.iterdir()):
        if not path.is_symlink():
            path.chmod(0o700)


def test_what_is_wrong_is_found_and_mended_and_every_row_is_there(
    calls: Path, tmp_path: Path
) -> None:
    before = _gym("verify", "--json", cwd=tmp_path)
    repaired = _gym("repair", cwd=tmp_path)
    after = _gym("verify", "--json", cwd=tmp_path)

    findings, left = (json.loads(said.stdout)["findings"] for said in (before, after))
    damaged = ["foreign", "foreign", "fused", "torn", "zeros"]
    assert (before.returncode, repaired.returncode, after.returncode) == (1, 0, 1)
    assert [f["rollout_id"] for f in findings] == [*damaged, None]
    assert [f["kind"] for f in findings] == ["damaged"] * 5 + ["stray"]
    assert "a folder.capture.jsonl" in findings[-1]["detail"]
    assert "fused.capture.jsonl: 3 rows given lines of their own" in repaired.stdout
    assert [f["rollout_id"] for f in left] == ["foreign", "torn", "zeros", None]
    assert [f["kind"] for f in left] == ["incomplete"] * 3 + ["stray"]
    assert (json.loads(after.stdout)["rollouts"], json.loads(after.stdout)["calls"]) == (6, 17)
    assert (calls / "notes.txt").read_text() == "mine"


def test_a_call_under_way_is_told_and_its_rollout_is_not_repaired(
    calls: Path, tmp_path: Path
) -> None:
    server = CaptureStore(calls)
    server.open_for_writing()
    claim = server.claim(RolloutId("zeros"))
    assert claim is not None
    found = _gym("verify", cwd=tmp_path)
    repaired = _gym("repair", cwd=tmp_path)
    left = (calls / "zeros.capture.jsonl").read_bytes()
    claim.release()
    server.close()

    assert "zeros: pending: a call is under way" in found.stdout
    assert (repaired.returncode, repaired.stderr.partition(":")[0]) == (1, "zeros")
    assert b"\0" in left


@needs_permissions
def test_a_file_that_may_not_be_read_hides_no_other(calls: Path, tmp_path: Path) -> None:
    (calls / "whole.capture.jsonl").chmod(0)

    listed = _gym("ls", cwd=tmp_path)
    followed = _gym("tail", "-n", "99", cwd=tmp_path)
    refused = [_gym(*command, cwd=tmp_path) for command in (("verify",), ("repair",))]
    shown = [_gym("show", "whole", *form, cwd=tmp_path) for form in ((), ("--raw",), ("--json",))]

    assert listed.returncode == 0
    assert "unreadable: Permission denied" in listed.stdout
    assert "unended" in listed.stdout
    assert "whole.capture.jsonl cannot be read: Permission denied" in followed.stderr
    assert "a2" in followed.stdout
    for command in (*refused, *shown):
        assert "Permission denied" in command.stdout + command.stderr
        assert "Traceback" not in command.stderr
    for command in shown:
        assert f"where: {calls / 'whole.capture.jsonl'}\n" in command.stderr
        assert "mend:  look at who may read it" in command.stderr
    assert [c.returncode for c in (*refused, *shown)] == [1, 1, 2, 2, 2]


@needs_permissions
def test_a_directory_that_may_not_be_written_is_read_and_left_as_it_was(
    calls: Path, tmp_path: Path
) -> None:
    files = [path for path in calls.iterdir() if path.is_file()]
    contents = {path: path.read_bytes() for path in files}
    for path in (*files, calls):
        path.chmod(0o500)

    listed = _gym("ls", "--json", cwd=tmp_path)
    repaired = _gym("repair", cwd=tmp_path)

    assert len(listed.stdout.splitlines()) == 6
    assert (listed.returncode, repaired.returncode) == (0, 1)
    assert repaired.stderr.count("left as it was: Permission denied") == 4
    assert {path: path.read_bytes() for path in files} == contents


def test_what_others_wrote_is_shown_as_far_as_it_can_be(calls: Path, tmp_path: Path) -> None:
    commands = (("ls",), ("tail", "-n", "99"), ("show", "foreign"), ("show", "foreign", "--json"))
    shown = [_gym(*command, cwd=tmp_path) for command in commands]

    assert [(c.returncode, c.stderr) for c in shown] == [(0, "")] * len(commands)
    assert all("foreign" in c.stdout for c in shown[:2])
    assert (calls / "foreign.capture.jsonl").exists()


@pytest.mark.parametrize("form", [(), ("--raw",), ("--json",)])
@pytest.mark.parametrize("rollout", ["nobody", "cleared"])
def test_a_rollout_without_calls_is_said_to_have_none(
    calls: Path, tmp_path: Path, rollout: str, form: tuple[str, ...]
) -> None:
    shown = _gym("show", rollout, *form, cwd=tmp_path)

    assert (shown.returncode, shown.stdout) == (2, "")
    assert f"no model calls of rollout '{rollout}'" in shown.stderr
    assert calls.exists()


def test_what_a_reader_should_know_besides_is_shown_with_the_call(tmp_path: Path) -> None:
    (tmp_path / "calls").mkdir()
    row = {
        "model_call_id": "a",
        "status_code": 200,
        "error_category": "cancelled",
        "upstream_attempts": [{"status": 503, "ms": 12.4}, {"error": "reset", "ms": 3}],
        "notes": {"phase": "mid_stream", "unparsed_events": 2},
    }
    odd = {"model_call_id": "b", "notes": 3, "upstream_attempts": [1, {"ms": "x"}]}
    lines = "".join(json.dumps(line) + "\n" for line in (row, odd, {"model_call_id": "c"}))
    (tmp_path / "calls" / "0-0.capture.jsonl").write_text(lines)

    shown = _gym("show", "0-0", cwd=tmp_path)
    plain = json.loads(_gym("show", "0-0", "--json", cwd=tmp_path).stdout)

    assert "2 attempts: 503 after 12 ms, reset after 3 ms" in shown.stdout
    assert "notes: phase: mid_stream, unparsed_events: 2" in shown.stdout
    assert plain[0]["notes"] == row["notes"]
    assert plain[0]["upstream_attempts"] == row["upstream_attempts"]
    assert "notes" not in plain[2]


@pytest.mark.parametrize("verb", ["ls", "show", "verify", "repair"])
def test_the_example_in_a_commands_help_runs_as_it_is_written(tmp_path: Path, verb: str) -> None:
    store = CaptureStore(tmp_path / "results" / "model-calls")
    store.submit(Row(RolloutId("0-0"), "c0", _row(0))).result()
    store.close()
    shown = subprocess.run([GYM, "capture", verb, "--help"], capture_output=True, check=True)
    example = shown.stdout.decode().partition("Example:")[2].split()

    ended = subprocess.run([GYM, *example[1:]], cwd=tmp_path, capture_output=True, check=False)

    assert example[:3] == ["gym", "capture", verb]
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout


def test_a_pipe_and_a_ring_of_links_are_named_and_waited_for_by_nobody(
    calls: Path, tmp_path: Path
) -> None:
    os.mkfifo(calls / "pipe.capture.jsonl")
    (calls / "ring.capture.jsonl").symlink_to("ring.capture.jsonl")

    verbs = (("ls",), ("verify",), ("repair",), ("tail", "-n", "99"))
    looked = [_gym(*verb, cwd=tmp_path) for verb in verbs]
    shown = [_gym("show", rollout, cwd=tmp_path) for rollout in ("pipe", "ring")]

    assert [c.returncode for c in (*looked, *shown)] == [0, 1, 1, 0, 2, 2]
    for ended in looked:
        said = ended.stdout + ended.stderr
        assert "Not a regular file" in said
        assert "Too many levels of symbolic links" in said
        assert "Traceback" not in said
    assert ["cannot be read: " in c.stderr for c in shown] == [True, True]
    assert "a2" in looked[3].stdout


@pytest.mark.parametrize("form", [(), ("--raw",), ("--json",)])
@pytest.mark.parametrize(
    "make",
    [os.mkfifo, os.mkdir, lambda ring: ring.symlink_to(ring.name)],
    ids=["pipe", "folder", "ring"],
)
def test_what_is_no_file_is_named_with_its_mend(
    tmp_path: Path, make: Callable[[Path], None], form: tuple[str, ...]
) -> None:
    path = tmp_path / "calls" / "odd.capture.jsonl"
    path.parent.mkdir()
    make(path)
    shown = _gym("show", "odd", *form, cwd=tmp_path)

    assert shown.returncode == 2
    assert "the calls of rollout 'odd' cannot be read: " in shown.stderr
    assert f"where: {path}\n" in shown.stderr
    assert "mend:  move it away: only a regular file can hold calls" in shown.stderr
