"""Whether a capture has a row of some id: the first row is looked at before all others."""

from pathlib import Path

import pytest

from nemo_gym.capture.reading import names_call
from nemo_gym.files.disk import Disk


class _Counting(Disk):
    def __init__(self) -> None:
        self.bytes_read = 0

    def read_at(self, fd: int, length: int, offset: int) -> bytes:
        data = super().read_at(fd, length, offset)
        self.bytes_read += len(data)
        return data


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "0-0.capture.jsonl"
    payload = "x" * 100_000
    rows = (f'{{"model_call_id":"{name}","request":"{payload}"}}\n' for name in ("a", "b"))
    path.write_text("".join(rows))
    return path


def test_the_first_row_is_known_by_the_beginning_of_the_file(capture: Path) -> None:
    disk = _Counting()

    assert names_call(disk, capture, "a".__eq__)
    assert disk.bytes_read < 1000


def test_every_other_row_is_known_too_and_nothing_else(capture: Path) -> None:
    assert names_call(Disk(), capture, "b".__eq__)
    assert not names_call(Disk(), capture, "c".__eq__)


def test_what_cannot_be_opened_is_an_error(capture: Path) -> None:
    capture.unlink()
    capture.mkdir()

    with pytest.raises(OSError, match="directory"):
        names_call(Disk(), capture, "a".__eq__)
