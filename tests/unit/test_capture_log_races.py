"""Two processes at one owner file: whoever comes in between takes no log from the living."""

from collections.abc import Callable
from pathlib import Path

from nemo_gym.capture.commit_log import CommitLog
from nemo_gym.capture.layout import Layout
from nemo_gym.capture.recovery import recover
from nemo_gym.capture.row import Row
from nemo_gym.files.disk import REAL_DISK, Disk
from nemo_gym.ids import RolloutId

ROW = Row(RolloutId("0-0"), "c", b'{"model_call_id":"c"}')
SEGMENT_BYTES = 1 << 16


class OvertakenDisk(Disk):
    """Lets another process go on between opening an owner file and locking it, once."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.meanwhile: Callable[[], object] | None = meanwhile

    def open_existing(self, path: Path) -> int:
        return self._overtaken(super().open_existing(path))

    def open_read_write(self, path: Path) -> int:
        return self._overtaken(super().open_read_write(path))

    def _overtaken(self, fd: int) -> int:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return fd


def layout_of(directory: Path) -> Layout:
    layout = Layout(directory)
    for folder in layout.folders:
        folder.mkdir(exist_ok=True)
    return layout


def test_an_opener_with_a_removed_owner_file_leaves_the_log_that_was_made_anew(
    tmp_path: Path,
) -> None:
    layout = layout_of(tmp_path)
    log = CommitLog(layout, REAL_DISK, "w", SEGMENT_BYTES)
    layout.owner("w").write_text("the boot before the cut")

    def make_it_anew() -> None:
        layout.owner("w").unlink()
        log.open()
        log.commit([ROW])

    restored = recover(layout, OvertakenDisk(make_it_anew))

    assert restored == 0
    assert not log.is_gone()
    assert len(list(layout.logs.glob("w.*.log"))) == 1
    log.close()


def test_a_writer_whose_owner_file_an_opener_removed_locks_another(tmp_path: Path) -> None:
    layout = layout_of(tmp_path)
    disk = OvertakenDisk(lambda: recover(layout, REAL_DISK))
    log = CommitLog(layout, disk, "w", SEGMENT_BYTES)

    log.open()

    assert disk.meanwhile is None
    assert not log.is_gone()
    log.commit([ROW])
    assert recover(layout, REAL_DISK) == 0
    assert not log.is_gone()
    log.close()
