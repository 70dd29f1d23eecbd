"""What lies in a capture directory under the name of a file and is none: it costs itself only."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nemo_gym.capture.layout import Layout
from nemo_gym.capture.reading import capture_files
from nemo_gym.capture.recovery import recover
from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.errors import ConfigMistake
from nemo_gym.files.disk import Disk
from nemo_gym.ids import RolloutId
from nemo_gym.observability.follow import Follower
from nemo_gym.observability.summaries import summarize_all

A, ODD = RolloutId("0-0"), RolloutId("odd")
LOOP = "Too many levels of symbolic links"


def row(rollout_id: RolloutId, call_id: str) -> Row:
    return Row(rollout_id, call_id, f'{{"model_call_id":"{call_id}"}}'.encode())


def ids(store: CaptureStore, rollout_id: RolloutId) -> list[str]:
    return [item["model_call_id"] for item in store.read(rollout_id) if isinstance(item, dict)]


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def folder(path: Path) -> None:
    path.mkdir()


KINDS = pytest.mark.parametrize(
    ("make", "reason"),
    [(os.mkfifo, "Not a regular file"), (loop, LOOP), (folder, "Is a directory")],
    ids=["pipe", "loop", "directory"],
)


class AfterAPowerCut(Disk):
    """Another boot than the one in which the rows were written."""

    def page_cache_id(self) -> str | None:
        return "another boot"


def stored(directory: Path, *rows: Row) -> Layout:
    store = CaptureStore(directory)
    for each in rows:
        store.submit(each).result()
    store.close()
    return store.layout


@KINDS
def test_it_is_told_as_a_file_that_cannot_be_read_and_hides_no_other(
    tmp_path: Path, make: Callable[[Path], None], reason: str
) -> None:
    layout = stored(tmp_path, row(A, "a"))
    make(layout.capture_file(ODD))
    (tmp_path / "gone.capture.jsonl").symlink_to("nothing")
    store = CaptureStore(tmp_path)
    follower = Follower(store)

    assert [line[0] for line in follower.new_lines()] == [A]
    gone = "A link that leads nowhere"
    assert follower.unreadable == {
        layout.capture_file(ODD): reason,
        tmp_path / "gone.capture.jsonl": gone,
    }
    assert [(s.rollout_id, s.calls, s.unreadable) for s in summarize_all(store)] == [
        (A, 1, None),
        ("gone", 0, gone),
        (ODD, 0, reason),
    ]
    with pytest.raises(OSError, match=r"odd\.capture\.jsonl"):
        store.read(ODD)


@KINDS
def test_a_row_that_should_go_there_is_marked_as_lost_and_the_next_are_kept(
    tmp_path: Path, make: Callable[[Path], None], reason: str
) -> None:
    store = CaptureStore(tmp_path)
    store.open_for_writing()
    make(store.layout.capture_file(ODD))
    lost = [store.submit(row(ODD, f"o{number}")) for number in range(3)]
    store.submit(row(A, "a")).result(10)

    assert [getattr(future.exception(10), "strerror", None) for future in lost] == [reason] * 3
    assert store.is_incomplete(ODD)
    assert ids(store, A) == ["a"]
    store.close()


@KINDS
@pytest.mark.parametrize("others", [1, 100])
def test_others_are_cleared_and_it_cannot_be(
    tmp_path: Path, make: Callable[[Path], None], reason: str, others: int
) -> None:
    layout = stored(tmp_path, row(A, "a"))
    make(layout.capture_file(ODD))
    store = CaptureStore(tmp_path)
    absent = [f"1-{number}" for number in range(others)]
    store.clear([A, *absent])

    assert ids(store, A) == []
    with pytest.raises(OSError, match=reason):
        store.clear([ODD, *absent])


def leave_log(tmp_path: Path, *rows: Row) -> Layout:
    """Leave what a power cut leaves: a log with rows that the capture files lack."""
    layout = Layout(tmp_path / "after")
    writing = CaptureStore(tmp_path / "before")
    for each in rows:
        writing.submit(each).result()
    for made in layout.folders:
        made.mkdir()
    for path in writing.layout.logs.iterdir():
        (layout.logs / path.name).write_bytes(path.read_bytes())
    writing.close()
    return layout


def test_after_a_power_cut_others_get_their_rows_back_and_its_own_stay_in_the_log(
    tmp_path: Path,
) -> None:
    layout = leave_log(tmp_path, row(ODD, "o"), row(A, "a"))
    os.mkfifo(layout.capture_file(ODD))
    disk = AfterAPowerCut()
    first, again = recover(layout, disk), recover(layout, disk)
    layout.capture_file(ODD).unlink()
    last = recover(layout, disk)

    assert (first, again, last) == (1, 0, 1)
    assert ids(CaptureStore(layout.directory), ODD) == ["o"]
    assert list(layout.logs.iterdir()) == []


@pytest.mark.parametrize("name", ["000000000000.owner", "000000000000.1.log"])
def test_an_odd_log_leaves_the_logs_of_others_to_be_replayed(tmp_path: Path, name: str) -> None:
    layout = leave_log(tmp_path, row(A, "a"))
    os.mkfifo(layout.logs / name)

    assert recover(layout, AfterAPowerCut()) == 1
    assert [path.name for path in layout.logs.iterdir()] == [name]


def test_tombstones_that_cannot_be_read_bring_no_cleared_row_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    layout = leave_log(tmp_path, row(A, "a"))
    os.mkfifo(layout.tombstones)

    assert recover(layout, AfterAPowerCut()) == 0
    assert list(capture_files(layout)) == []
    assert "tombstones.jsonl" in caplog.text
    layout.capture_file(A).write_bytes(row(A, "b").line)
    with pytest.raises(OSError, match="Not a regular file"):
        CaptureStore(layout.directory, disk=AfterAPowerCut()).clear([A])


def test_an_odd_claims_file_is_a_mistake_at_start_and_says_pending_to_readers(
    tmp_path: Path,
) -> None:
    layout = stored(tmp_path, row(A, "a"))
    for path in layout.claims.iterdir():
        path.unlink()
        os.mkfifo(path)
    store = CaptureStore(tmp_path)

    with pytest.raises(ConfigMistake, match="Not a regular file"):
        store.open_for_writing()
    assert store.is_pending(A)


def test_a_mark_that_cannot_be_written_is_held_as_a_claim(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    store.open_for_writing()
    os.mkfifo(store.layout.mark(A))
    os.mkfifo(store.layout.capture_file(A))

    assert store.submit(row(A, "a")).exception(10) is not None
    assert store.is_incomplete(A)
    store.close()
