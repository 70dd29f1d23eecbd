"""What a live run holds, who is refused, and what a run that is gone leaves behind."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.errors import OutputUnusable, RunConflict
from nemo_gym.files.disk import Disk
from nemo_gym.rollouts.lease import CaptureIds, Holder, hold_capture_ids, hold_output
from support.disks import LocklessDisk

HOLDER = Holder("/results/x.jsonl", "2026-01-01T00:00:00+00:00", 77, "here")
ALL = CaptureIds((0, 9), frozenset())

ranges = st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted).map(tuple)
ids = st.builds(CaptureIds, ranges, st.frozensets(st.sampled_from(["a", "b", "c"]), max_size=2))


@given(ids, ids)
def test_runs_overlap_exactly_when_they_have_an_id_in_common(
    one: CaptureIds, other: CaptureIds
) -> None:
    def spelled(ids: CaptureIds) -> set[str]:
        low, high = ids.tasks or (1, 0)
        return {str(task) for task in range(low, high + 1)} | ids.explicit

    assert one.overlaps(other) == other.overlaps(one) == bool(spelled(one) & spelled(other))


def test_what_is_held_is_free_after_it_is_let_go(tmp_path: Path) -> None:
    lock = tmp_path / "x_run.lock"
    with hold_output(lock, HOLDER), pytest.raises(RunConflict, match="process 77 on here"):
        hold_output(lock, HOLDER)

    hold_output(lock, HOLDER).close()
    assert list(tmp_path.iterdir()) == []


def test_directories_made_for_a_run_go_with_it_unless_something_is_in_them(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    lease = hold_output(tmp_path / "old" / "a" / "b" / "x_run.lock", HOLDER)
    (tmp_path / "old" / "a" / "kept").write_text("")
    lease.close()

    hold_output(tmp_path / "old" / "x_run.lock", HOLDER).close()

    assert [path.name for path in (tmp_path / "old").iterdir()] == ["a"]
    assert [path.name for path in (tmp_path / "old" / "a").iterdir()] == ["kept"]


def test_a_directory_that_goes_while_it_is_taken_is_made_again(tmp_path: Path) -> None:
    class Contested(Disk):
        """Another run, refused just now, removes the directory that both have made."""

        refused = 0

        def make_directory(self, path: Path) -> None:
            super().make_directory(path)
            if self.refused < 2:
                self.refused += 1
                path.rmdir()

    lock = tmp_path / "new" / "x_run.lock"
    with hold_output(lock, HOLDER, disk=Contested()):
        assert lock.exists()

    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_which_no_file_can_be_made_is_not_left_behind(tmp_path: Path) -> None:
    class Full(Disk):
        def open_read_write(self, path: Path) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with pytest.raises(OutputUnusable, match="No space left"):
        hold_output(tmp_path / "new" / "x_run.lock", HOLDER, disk=Full())

    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_held_is_free_and_its_lease_is_removed(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from nemo_gym.rollouts.lease import *\n"
        "holder = Holder('/x', 'now', 1, 'h')\n"
        f"folder, ids = Path({str(tmp_path)!r}), CaptureIds((0, 5), frozenset())\n"
        "held = hold_output(folder / 'x_run.lock', holder), hold_capture_ids(folder, ids, holder)\n"
        "print('held', flush=True); time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(RunConflict):
        hold_output(tmp_path / "x_run.lock", HOLDER)
    with pytest.raises(RunConflict):
        hold_capture_ids(tmp_path, ALL, HOLDER)
    process.kill()
    process.communicate()

    hold_output(tmp_path / "x_run.lock", HOLDER).close()
    lease = hold_capture_ids(tmp_path, ALL, HOLDER)
    assert lease is not None
    lease.close()
    assert [path.name for path in (tmp_path / ".nemo_gym" / "runs").iterdir()] == ["guard.lock"]


def test_where_files_cannot_be_locked_nobody_is_refused(tmp_path: Path) -> None:
    disk = LocklessDisk()
    with hold_output(tmp_path / "x_run.lock", HOLDER, disk=disk):
        hold_output(tmp_path / "x_run.lock", HOLDER, disk=disk).close()
    one = hold_capture_ids(tmp_path, ALL, HOLDER, disk=disk)

    two = hold_capture_ids(tmp_path, ALL, HOLDER, disk=disk)

    assert one is not None
    assert two is not None
    two.close()
    one.close()


def test_a_lease_that_cannot_be_made_is_a_mistake_for_the_output_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(OutputUnusable):
        hold_output(tmp_path / "file" / "x_run.lock", HOLDER)
    assert hold_capture_ids(tmp_path / "file", ALL, HOLDER) is None


def test_a_folder_in_which_nothing_can_ever_be_made_is_a_mistake_and_no_endless_try(
    tmp_path: Path,
) -> None:
    class Proc(Disk):
        """Says of a directory that it is not there when asked to make it, as `/proc` does."""

        def make_directory(self, path: Path) -> None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))

    with pytest.raises(OutputUnusable) as refused:
        hold_output(tmp_path / "x" / "a_run.lock", HOLDER, disk=Proc())

    assert refused.value.where == str(tmp_path / "x")
    assert "--output" in str(refused.value.mend)


def test_a_run_that_is_refused_names_the_output_once_and_the_process(tmp_path: Path) -> None:
    with (
        hold_output(tmp_path / "a_run.lock", HOLDER),
        pytest.raises(RunConflict) as refused,
    ):
        hold_output(tmp_path / "a_run.lock", HOLDER)

    assert refused.value.what.count(HOLDER.output) == 1
    assert f"process {HOLDER.pid} on" in refused.value.what
