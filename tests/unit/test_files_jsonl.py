"""The JSON-lines file: tails, damage, full disks."""

import errno
from pathlib import Path

import pytest

from nemo_gym.files.disk import Disk
from nemo_gym.files.jsonl import Damaged, JsonlAppender, read_jsonl, read_jsonl_objects
from nemo_gym.files.locks import FileLocks


class ShortDisk(Disk):
    """Takes only a few bytes of each write while `full` is set."""

    full = False

    def write(self, fd: int, *parts: bytes) -> int:
        data = b"".join(parts)
        return super().write(fd, data[:7] if self.full else data)


class NoLocks(FileLocks):
    def lock_exclusive(self, fd: int) -> None:
        raise OSError(errno.ENOLCK, "no locks here")


class UnlockedDisk(Disk):
    locks = NoLocks()


def test_a_whole_last_line_without_its_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n{"b": 2}')
    with JsonlAppender(path) as sink:
        sink.append(b'{"c": 3}')

    assert path.read_bytes() == b'{"a": 1}\n{"b": 2}\n{"c": 3}\n'
    assert sink.dropped_bytes == 0


def test_half_a_character_at_the_end_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n{"b": "' + "é".encode()[:1])
    with JsonlAppender(path) as sink:
        sink.append(b'{"c": 3}')

    assert path.read_bytes() == b'{"a": 1}\n{"c": 3}\n'
    assert sink.dropped_bytes == 8


def test_a_full_disk_leaves_no_half_line_and_the_file_goes_on_after_it(tmp_path: Path) -> None:
    disk, path = ShortDisk(), tmp_path / "rows.jsonl"
    with JsonlAppender(path, disk=disk) as sink:
        sink.append(b'{"a": 1}')
        disk.full = True
        with pytest.raises(OSError, match="only 7 of 9 bytes"):
            sink.append(b'{"b": 2}')
        disk.full = False
        sink.append(b'{"c": 3}')

    assert path.read_bytes() == b'{"a": 1}\n{"c": 3}\n'


def test_a_line_end_inside_a_row_never_splits_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with JsonlAppender(path) as sink:
        sink.append(b'{"a":\n1}')

    assert list(read_jsonl_objects(path)) == [(1, {"a": 1})]


def test_where_there_are_no_locks_the_file_is_written_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with JsonlAppender(path, disk=UnlockedDisk()) as sink:
        sink.append(b'{"a": 1}')

    assert path.read_bytes() == b'{"a": 1}\n'


def test_damage_is_named_by_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n\n{"b": \n[1]\n{"c": 3}\n{"d"')
    items = dict(read_jsonl_objects(path))

    assert [number for number, item in items.items() if isinstance(item, dict)] == [1, 5]
    damaged = [item for item in items.values() if isinstance(item, Damaged)]
    assert [(item.line_number, item.offset, item.torn) for item in damaged] == [
        (3, 10, False),
        (4, 17, False),
        (6, 30, True),
    ]
    assert str(damaged[1]) == f"{path}:4: not a JSON object"
    assert isinstance(dict(read_jsonl(path))[6], Damaged)


def test_closing_twice_and_syncing_nothing_are_no_errors(tmp_path: Path) -> None:
    sink = JsonlAppender(tmp_path / "rows.jsonl")
    sink.sync()
    sink.sync()
    sink.close()
    sink.close()

    assert (tmp_path / "rows.jsonl").read_bytes() == b""
