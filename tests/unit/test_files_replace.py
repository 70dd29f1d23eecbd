"""A file is replaced as a whole, or stands as it was."""

import os
from pathlib import Path

import pytest

from nemo_gym.files.disk import Disk
from nemo_gym.files.replace import replace_file, replacing


class _Slow(Disk):
    """Writes one byte at a time, as it may."""

    def write_at(self, fd: int, data: bytes, offset: int) -> int:
        return super().write_at(fd, data[:1], offset)


def test_a_file_is_replaced_whatever_is_written_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a longer old one")

    replace_file(path, b"new", disk=_Slow())

    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_of_whoever_writes_leaves_the_old_content_and_nothing_else(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def write_half(descriptor: int) -> None:
        os.write(descriptor, b"half")
        raise KeyError

    with pytest.raises(KeyError), replacing(path) as descriptor:
        write_half(descriptor)

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
