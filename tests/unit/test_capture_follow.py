"""Following a capture directory hands each row out once, and costs little however many files."""

import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.disk import Disk
from nemo_gym.ids import RolloutId
from nemo_gym.observability.follow import Follower, pause_after
from nemo_gym.observability.repair import repair_rollout

A = RolloutId("0-0")


def _rows(follower: Follower) -> list[tuple[str, bytes]]:
    return [(str(rollout_id), line) for rollout_id, line in follower.new_lines()]


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def _row(name: str, pad: int = 0) -> bytes:
    return f'{{"model_call_id":"{name}","request":{{"pad":"{"x" * pad}"}}}}'.encode()


def test_a_row_is_handed_out_once_and_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "0-0.capture.jsonl"
    _append(path, b'{"n":0}\n{"n":')
    follower = Follower(CaptureStore(tmp_path))

    assert _rows(follower) == [("0-0", b'{"n":0}')]
    assert _rows(follower) == []
    _append(path, b'1}\n\n{"n":2}\n')
    assert _rows(follower) == [("0-0", b'{"n":1}'), ("0-0", b'{"n":2}')]


@pytest.mark.parametrize("count", [0, 1, 9])
def test_what_was_there_before_is_handed_out_as_far_as_it_is_asked_for(
    tmp_path: Path, count: int
) -> None:
    path = tmp_path / "0-0.capture.jsonl"
    _append(path, b'{"n":0}\n{"n":1}\n{"n":')
    follower = Follower(CaptureStore(tmp_path))
    before = [line for _, line in follower.last_lines(count)]
    _append(path, b"2}\n")

    assert before == [b'{"n":0}', b'{"n":1}'][2 - min(count, 2) :]
    assert _rows(follower) == [("0-0", b'{"n":2}')]


def _written(folder: Path) -> list[tuple[float, str]]:
    """Write rows of some rollouts, in each in the order of their ends; return all of them."""
    chance = random.Random(7)  # noqa: S311 - sizes and times, no secrets
    written = []
    for rollout in range(9):
        ends = sorted(chance.uniform(0, 1000) for _ in range(chance.randrange(12)))
        lines = []
        for number, end in enumerate(ends):
            name = f"{rollout}-{number}"
            pad = chance.choice([0, 10, 70_000, 200_000])
            lines.append(
                f'{{"model_call_id":"{name}","completed_at":{end},"request":"{"x" * pad}"}}\n'
            )
            written.append((end, name))
        (folder / f"{rollout}-0.capture.jsonl").write_text("".join(lines))
    return sorted(written)


@pytest.mark.parametrize("count", [1, 5, 30, 500])
def test_the_last_rows_are_those_whose_calls_ended_last(tmp_path: Path, count: int) -> None:
    written = _written(tmp_path)
    lines = [line for _, line in Follower(CaptureStore(tmp_path)).last_lines(count)]

    names = [line.split(b'"')[3].decode() for line in lines]
    assert names == [name for _, name in written[-count:]]


class _Counting(Disk):
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        self.read = 0

    def read_at(self, fd: int, length: int, offset: int) -> bytes:
        data = super().read_at(fd, length, offset)
        self.read += len(data)
        return data


def test_for_the_last_rows_only_the_ends_of_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "0-0.capture.jsonl"
    path.write_bytes(b"".join(_row(str(number), pad=1000) + b"\n" for number in range(5000)))
    disk = _Counting()

    lines = list(Follower(CaptureStore(tmp_path), disk=disk).last_lines(2))

    assert [line for _, line in lines] == [_row(str(number), pad=1000) for number in (4998, 4999)]
    assert disk.read < 500_000


@pytest.mark.parametrize("now_s", [1, 10**6], ids=["at once", "long after"])
@pytest.mark.parametrize("again", [0, 1, 3], ids=["as long", "longer", "much longer"])
def test_a_file_that_was_cleared_and_grew_again_begins_anew(
    tmp_path: Path, again: int, now_s: int
) -> None:
    path = tmp_path / "0-0.capture.jsonl"
    _append(path, _row("a") + b"\n")
    store = CaptureStore(tmp_path)
    follower = Follower(store, clock_ns=lambda: path.stat().st_mtime_ns + now_s * 10**9)
    _rows(follower)
    store.clear(["0-0"])
    later = [_row("b"), *(_row(f"c{number}", pad=9) for number in range(again))]
    for line in later:
        _append(path, line + b"\n")
    if now_s > 2 and not again:  # the clock has ticked since
        os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**7))

    assert [line for _, line in _rows(follower)] == later
    assert _rows(follower) == []
    assert follower.unreadable == {}


@pytest.mark.parametrize("again", [0, 3])
def test_a_file_that_was_removed_and_made_anew_begins_anew(tmp_path: Path, again: int) -> None:
    path = tmp_path / "0-0.capture.jsonl"
    _append(path, _row("a") + b"\n")
    follower = Follower(CaptureStore(tmp_path))
    _rows(follower)
    path.unlink()
    later = [_row("b"), *(_row(f"c{number}") for number in range(again))]
    for line in later:
        _append(path, line + b"\n")

    assert [line for _, line in _rows(follower)] == later


def test_a_repair_makes_no_row_come_twice(tmp_path: Path) -> None:
    path = tmp_path / "0-0.capture.jsonl"
    _append(path, _row("a") + b"\nno row\n" + _row("b") + b"\n")
    store = CaptureStore(tmp_path)
    follower = Follower(store)
    before = _rows(follower)
    repair_rollout(store, "0-0")
    _append(path, _row("c") + b"\n")

    assert [line for _, line in before] == [_row("a"), b"no row", _row("b")]
    assert [line for _, line in _rows(follower)] == [_row("c")]


def test_a_row_longer_than_what_is_read_at_once_is_whole(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    follower = Follower(store)
    lines = [_row(str(number), pad=size) for number, size in enumerate((10, 3_000_000, 600_000))]
    for number, line in enumerate(lines):
        store.submit(Row(A, str(number), line)).result()
    store.close()

    assert [line for _, line in _rows(follower)] == lines


_STEPS = st.lists(st.sampled_from(["row", "long row", "clear", "remove", "look"]), max_size=12)


@given(_STEPS)
def test_each_row_that_is_there_at_a_look_came_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("calls")
    path = folder / "0-0.capture.jsonl"
    store = CaptureStore(folder)
    follower = Follower(store)
    came: list[bytes] = []
    expected: list[bytes] = []
    there: list[bytes] = []
    for number, step in enumerate((*steps, "look")):
        if step in {"row", "long row"}:
            there.append(_row(f"{number:02}", pad=300 if step == "long row" else 0))
            _append(path, there[-1] + b"\n")
        elif step == "clear":
            store.clear(["0-0"])
            there.clear()
        elif step == "remove":
            path.unlink(missing_ok=True)
            there.clear()
        else:
            came += [line for _, line in follower.new_lines()]
            expected += [line for line in there if line not in expected]

    assert came == expected


def test_each_file_that_cannot_be_read_is_told_once(tmp_path: Path) -> None:
    first, second = (tmp_path / f"{name}.capture.jsonl" for name in ("0-0", "1-0"))
    first.mkdir()
    follower = Follower(CaptureStore(tmp_path))
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
    follower = Follower(CaptureStore(tmp_path), disk=_MovedAway())

    assert _rows(follower) == []
    assert follower.newly_unreadable() == {}


@given(st.floats(0, 100))
def test_looking_takes_a_tenth_of_a_core_at_most(cpu_s: float) -> None:
    pause = pause_after(cpu_s)

    assert pause >= 0.25
    assert cpu_s <= 0.1001 * (cpu_s + pause)
