"""The commit log: what is synced before a call is let go, one sync for a whole batch.

Records in, durable when `commit` returns. A log is a few segments, each a file reserved once and
written over again and again; a segment may be written over once the capture files its records
also went to are synced (`Segment.touched`). Reading gives back the records of a segment, of its
current generation only, up to the first that is not whole.
"""

import errno
import struct
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias
from zlib import crc32

from xxhash import xxh3_64_intdigest

from nemo_gym.capture.row import Row
from nemo_gym.files.disk import Disk
from nemo_gym.ids import RolloutId

__all__ = [
    "SEGMENT_BYTES",
    "Segment",
    "new_segment",
    "read_segment",
    "renew_segment",
    "trim_segment",
    "write_records",
]

SEGMENT_BYTES = 16 * 1024 * 1024
"""What a segment holds before the next one is begun."""
_BLOCK = bytes(256 * 1024)
"""How much of a new segment goes to the disk at a time: rows are synced in between."""
_ROOM_LEFT = 8
_MAGIC = b"NGCLOG02"
_MAGIC_WITH_CRC = b"NGCLOG01"
"""Of segments that a server of an earlier version left behind: what it kept is still read."""
_HEAD = struct.Struct("<8sI")
# length of the payload, checksum of generation and payload, generation
_RECORD = struct.Struct("<III")
_IDS = struct.Struct("<BB")


def _checksum(ids: bytes, line: bytes, generation: int) -> int:
    """Return 32 bits that all of a record goes into, and the round in which it was written."""
    return xxh3_64_intdigest(line, xxh3_64_intdigest(ids, generation)) & 0xFFFFFFFF


def _checksum_of_old(ids: bytes, line: bytes, generation: int) -> int:
    return crc32(line, crc32(ids, generation))


_Checksum: TypeAlias = Callable[[bytes, bytes, int], int]
_CHECKSUMS: dict[bytes, _Checksum] = {_MAGIC: _checksum, _MAGIC_WITH_CRC: _checksum_of_old}


@dataclass(slots=True)
class Segment:
    """One file of a log, open for writing."""

    path: Path
    fd: int
    generation: int
    """Rises from segment to segment of one log, so it gives their order."""
    capacity: int = SEGMENT_BYTES
    position: int = 0
    """Where the next record goes; 0 when not even the head is written in this generation."""
    touched: set[RolloutId] = field(default_factory=set[RolloutId])
    """Rollouts whose capture files must be synced before the segment is written over."""

    @property
    def is_full(self) -> bool:
        """Nothing more should go here; a batch larger than what is left still fits."""
        return self.position >= self.capacity

    @property
    def is_half_full(self) -> bool:
        """Time to have the next one ready."""
        return self.position >= self.capacity // 2


def new_segment(
    disk: Disk, path: Path, generation: int, capacity: int, *, fill: bool = True
) -> Segment:
    """Make a segment, durable by name.

    It is filled with zeros and synced: a sync of bytes that lie where bytes have lain before costs
    no journal commit, one of bytes in new space does, along with everybody else's. Where room is
    scarce it is left to the rows; `fill` false is for a writer that cannot wait.
    """
    fd = disk.open_read_write(path)
    try:
        if fill and disk.free_bytes(path.parent) > _ROOM_LEFT * capacity:
            _fill(disk, fd, capacity)
            disk.sync(fd)
        disk.sync_directory(path.parent)
    except BaseException:
        disk.close(fd)
        disk.unlink(path)
        raise
    return Segment(path, fd, generation, capacity)


def _fill(disk: Disk, fd: int, capacity: int) -> None:
    """Write zeros, as far as a quota or a limit on the size of files lets this process."""
    try:
        for offset in range(0, capacity, len(_BLOCK)):
            disk.write_at(fd, _BLOCK[: capacity - offset], offset)
            disk.write_back(fd)
    except OSError as error:
        if error.errno not in {errno.EFBIG, errno.EDQUOT, errno.ENOSPC}:
            raise


def trim_segment(disk: Disk, segment: Segment) -> None:
    """Cut off what a last batch wrote beyond the capacity, which takes milliseconds."""
    if segment.position > segment.capacity:
        disk.truncate(segment.fd, segment.capacity)


def renew_segment(segment: Segment, generation: int) -> None:
    """Make a segment ready to be written over; its records are in synced files by now."""
    segment.generation = generation
    segment.position = 0
    segment.touched = set()


def write_records(disk: Disk, segment: Segment, records: Sequence[Row]) -> int:
    """Write `records` at the segment's position; return how many bytes that were.

    The position stays: it moves once the bytes are synced. Raises `OSError`.
    """
    generation = segment.generation
    parts = [] if segment.position else [_HEAD.pack(_MAGIC, generation)]
    for record in records:
        rollout_id, call_id, line = record
        rollout, call = rollout_id.encode("ascii"), call_id.encode("ascii")
        ids = _IDS.pack(len(rollout), len(call)) + rollout + call
        checksum = _checksum(ids, line, generation)
        parts += (_RECORD.pack(len(ids) + len(line), checksum, generation) + ids, line)
    size = sum(map(len, parts))
    written = disk.write_parts_at(segment.fd, parts, segment.position)
    if written != size:
        raise OSError(errno.ENOSPC, f"only {written} of {size} bytes fit into the commit log")
    return size


def read_segment(disk: Disk, path: Path) -> tuple[int, list[Row]]:
    """Return a segment's generation and its whole records, in the order they were written."""
    fd = disk.open_read(path)
    try:
        head = disk.read_at(fd, _HEAD.size, 0)
        magic, generation = _HEAD.unpack(head) if len(head) == _HEAD.size else (b"", 0)
        checksum = _CHECKSUMS.get(magic)
        if checksum is None:
            return 0, []
        return generation, list(_records(disk, fd, generation, checksum))
    finally:
        disk.close(fd)


def _records(disk: Disk, fd: int, generation: int, checksum: _Checksum) -> Generator[Row]:
    size, offset = disk.state(fd).size, _HEAD.size
    while (found := _read_payload(disk, fd, offset, size, generation)) is not None:
        payload, expected = found
        rollout_length, call_length = _IDS.unpack_from(payload)
        split = _IDS.size + rollout_length
        end = split + call_length
        ids, line = payload[:end], payload[end:]
        if checksum(ids, line, generation) != expected:
            return
        rollout, call = ids[_IDS.size : split], ids[split:]
        yield Row(RolloutId(rollout.decode("ascii")), call.decode("ascii"), line)
        offset += _RECORD.size + len(payload)


def _read_payload(
    disk: Disk, fd: int, offset: int, size: int, generation: int
) -> tuple[bytes, int] | None:
    """Return ids and line of the record at `offset`, and its checksum; None: there is none."""
    head = disk.read_at(fd, _RECORD.size, offset)
    if len(head) < _RECORD.size:
        return None
    length, checksum, written_in = _RECORD.unpack(head)
    start = offset + _RECORD.size
    if written_in != generation or not _IDS.size <= length <= size - start:
        return None
    payload = disk.read_at(fd, length, start)
    return (payload, checksum) if len(payload) == length else None
