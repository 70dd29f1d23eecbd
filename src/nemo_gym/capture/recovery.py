"""After a power cut: what the commit logs hold and the capture files lack goes into the files.

Any opener of a directory does it, for the logs whose owner is gone, and as often as it likes: a
row that is there is left alone, one that was cleared stays cleared.
"""

import logging
from collections import defaultdict
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path

from nemo_gym.capture.layout import OWNER, Layout
from nemo_gym.capture.log import read_segment
from nemo_gym.capture.reading import model_call_ids
from nemo_gym.capture.rollout_files import sync_files
from nemo_gym.capture.row import Row
from nemo_gym.capture.tombstones import forget_tombstones, logs_exist, read_tombstones
from nemo_gym.files.append import append_line
from nemo_gym.files.disk import Disk
from nemo_gym.ids import RolloutId

__all__ = ["recover"]

logger = logging.getLogger(__name__)


def recover(layout: Layout, disk: Disk) -> int:
    """Replay the logs of dead owners; return how many rows were put back. Never raises."""
    restored = 0
    try:
        if logs_exist(layout):
            with _one_at_a_time(layout, disk):
                restored = _recover_all(layout, disk)
    except OSError as error:
        logger.warning("capture: %s cannot be looked through: %s", layout.hidden, error)
    if restored:
        logger.warning("capture: put %d rows back into %s", restored, layout.directory)
    return restored


@contextmanager
def _one_at_a_time(layout: Layout, disk: Disk) -> Generator[None]:
    """Wait for another opener that is at it: what it puts back must be there when we read."""
    fd = disk.open_append(layout.hidden / "recovery.lock")
    try:
        disk.locks.lock_exclusive(fd)
        yield
    finally:
        disk.close(fd)


def _recover_all(layout: Layout, disk: Disk) -> int:
    restored = 0
    names = sorted(path.name for path in layout.logs.iterdir())
    owned = {name.removesuffix(OWNER) for name in names if name.endswith(OWNER)}
    orphans = {name.partition(".")[0] for name in names} - owned
    locks = {writer: f"{writer}{OWNER}" for writer in sorted(owned)}
    for writer in sorted(orphans):
        # The power went between making a segment durable and its owner file.
        locks[writer] = next(name for name in names if name.partition(".")[0] == writer)
    for writer, lock_name in locks.items():
        try:
            restored += _recover_writer(layout, disk, writer, lock_name)
        except OSError as error:
            logger.warning("capture: the log of %s is left as it is: %s", writer, error)
    forget_tombstones(layout, disk)
    return restored


def _recover_writer(layout: Layout, disk: Disk, writer: str, lock_name: str) -> int:
    """Replay one log if nobody holds it; `lock_name` is the file whose lock says so."""
    try:
        fd = disk.open_existing(layout.logs / lock_name)
    except FileNotFoundError:
        return 0
    try:
        if not disk.locks.try_exclusive(fd) or disk.state(fd).links == 0:
            return 0
        owner = disk.read_at(fd, 64, 0) if lock_name.endswith(OWNER) else b""
        segments = sorted(layout.logs.glob(f"{writer}.*.log"))
        logs = sorted((read_segment(disk, path) for path in segments), key=itemgetter(0))
        records = [record for _, part in logs for record in part]
        forgotten = owner.decode() != disk.page_cache_id()
        restored, failed = _settle(layout, disk, records, forgotten=forgotten)
        if failed:
            logger.warning(
                "capture: the log of %s is kept: %d rollouts cannot have their rows back: %s",
                writer,
                len(failed),
                failed[0],
            )
            return restored
        for path in (*segments, layout.owner(writer)):
            disk.unlink(path)
        return restored
    finally:
        disk.close(fd)


def _settle(
    layout: Layout, disk: Disk, records: Iterable[Row], *, forgotten: bool
) -> tuple[int, list[OSError]]:
    """Make the capture files hold, for ever, what the log holds.

    Returns how many rows came back, and an error for each file that could not take its own.

    Without a power cut (`forgotten` false) nothing is missing but what somebody removed on
    purpose, and that is not brought back.
    """
    by_rollout: defaultdict[RolloutId, list[Row]] = defaultdict(list)
    for record in records:
        by_rollout[record.rollout_id].append(record)
    restored = 0
    failed: list[OSError] = []
    touched: list[Path] = []
    cleared = read_tombstones(layout, disk) if forgotten else set[str]()
    for rollout_id, wanted in by_rollout.items():
        path = layout.capture_file(rollout_id)
        try:
            restored += _put_back(disk, path, wanted, cleared) if forgotten else 0
            touched.append(path)
        except OSError as error:
            failed.append(error)
    if touched:
        sync_files(disk, layout.directory, touched)
    return restored, failed


def _put_back(disk: Disk, path: Path, records: list[Row], cleared: set[str]) -> int:
    """Append the rows that a file lacks; return how many those were."""
    fd = disk.open_append(path)
    try:
        with disk.locks.exclusive(fd):
            data = disk.read_at(fd, disk.state(fd).size, 0)
            there = set(model_call_ids(data)) | cleared
            missing = {r.model_call_id: r for r in records if r.model_call_id not in there}
            _cut_torn_copy(disk, fd, data, missing.values())
            for record in missing.values():
                append_line(disk, fd, record.line, lock=False)
            return len(missing)
    finally:
        disk.close(fd)


def _cut_torn_copy(disk: Disk, fd: int, data: bytes, missing: Iterable[Row]) -> None:
    """Cut the last line off when it is the beginning of a row that is about to be put back."""
    start = data.rfind(b"\n") + 1
    # Some file systems keep the size of what was not synced and give zeros for it.
    tail = data[start:].rstrip(b"\0")
    if start < len(data) and any(record.line.startswith(tail) for record in missing):
        disk.truncate(fd, start)
