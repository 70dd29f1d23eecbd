"""Following a capture directory hands each row out once, and costs little however many files."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.disk import Disk
from nemo_gym.observability.follow import Follower, pause_after


def _rows(follower: Follower) -> list[tuple[str, bytes]]:
    return [(str(rollout_id), line) for rollout_id, line in follower.new_lines()]


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_a_row_is_handed_out_once_and_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "0-0.capture.jsonl"
    _append(path, b'{"n":0}\n{"n":')
    follower = Follower(CaptureStore(tmp_path), from_start=True)

    assert _rows(follower) == [("0-0", b'{"n":0}')]
    assert _rows(follower) == []
    _append(path, b'1}\n\n{"n":2}\n')
    assert _rows(follower) == [("0-0", b'{"n":1}'), ("0-0", b'{"n":2}')]


def test_what_was_there_before_is_left_out_unless_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "0-0.capture.jsonl"
    _append(path, b'{"n":0}\n')
    follower = Follower(CaptureStore(tmp_path))
    _append(path, b'{"n":1}\n')

    assert _rows(follower) == [("0-0", b'{"n":1}')]


def test_a_file_that_was_cleared_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "0-0.capture.jsonl"
    _append(path, b'{"of an earlier attempt":0}\n')
    store = CaptureStore(tmp_path)
    follower = Follower(store, from_start=True)
    _rows(follower)
    store.clear(["0-0"])
    _append(path, b'{"n":1}\n')

    assert _rows(follower) == [("0-0", b'{"n":1}')]
    assert follower.unreadable == {}


def test_each_file_that_cannot_be_read_is_told_once(tmp_path: Path) -> None:
    first, second = (tmp_path / f"{name}.capture.jsonl" for name in ("0-0", "1-0"))
    first.mkdir()
    follower = Follower(CaptureStore(tmp_path), from_start=True)
    told = []
    for _ in range(2):
        told += [_rows(follower), follower.newly_unreadable()]
    second.mkdir()
    told += [_rows(follower), follower.newly_unreadable()]

    assert told == [[], {first: "Is a directory"}, [], {}, [], {second: "Is a directory"}]


class _MovedAway(Disk):
    """Every file is gone when it is opened."""

    def open_read(self, path: Path) -> int:
        path.unlink()
        return super().open_read(path)


def test_a_file_that_was_moved_away_meanwhile_is_no_file_that_cannot_be_read(
    tmp_path: Path,
) -> None:
    _append(tmp_path / "0-0.capture.jsonl", b'{"n":0}\n')
    follower = Follower(CaptureStore(tmp_path), from_start=True, disk=_MovedAway())

    assert _rows(follower) == []
    assert follower.newly_unreadable() == {}


@given(st.floats(0, 100))
def test_looking_takes_a_tenth_of_a_core_at_most(cpu_s: float) -> None:
    pause = pause_after(cpu_s)

    assert pause >= 0.25
    assert cpu_s <= 0.1001 * (cpu_s + pause)
