"""Nobody comes in between: capture files are read and changed under their lock, by everybody."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nemo_gym.capture.layout import Layout
from nemo_gym.capture.recovery import recover
from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import RolloutId
from nemo_gym.observability.repair import repair_rollout
from support.watched_disk import WatchedDisk

A, B = RolloutId("0-0"), RolloutId("0-1")

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="needs /proc to open a descriptor's file"
)


def row(call_id: str, rollout_id: RolloutId = A) -> Row:
    return Row(rollout_id, call_id, f'{{"model_call_id":"{call_id}"}}'.encode())


def append(store: CaptureStore, _: WatchedDisk) -> None:
    store.submit(row("a")).result()
    store.submit(row("b")).result()


def append_where_it_was_removed(store: CaptureStore, _: WatchedDisk) -> None:
    store.layout.capture_file(A).unlink()
    store.submit(row("b")).result()


def append_behind_a_torn_line(store: CaptureStore, _: WatchedDisk) -> None:
    with store.layout.capture_file(A).open("ab") as file:
        file.write(b"{")
    store.submit(row("b")).result()


def read(store: CaptureStore, _: WatchedDisk) -> None:
    store.read(A)


def clear(store: CaptureStore, _: WatchedDisk) -> None:
    store.submit(row("b", B)).result()
    store.clear([A, B])


def clear_among_many(store: CaptureStore, _: WatchedDisk) -> None:
    store.submit(row("b", B)).result()
    store.clear([A, B, *(f"{number}-9" for number in range(100))])


def repair(store: CaptureStore, disk: WatchedDisk) -> None:
    with store.layout.capture_file(A).open("ab") as file:
        file.write(b"no row\n")
    repair_rollout(store, A, disk)


class OtherBoot(WatchedDisk):
    def page_cache_id(self) -> str | None:
        return "another boot"


def put_back(store: CaptureStore, disk: WatchedDisk) -> None:
    layout = Layout(store.directory / "after")
    for folder in layout.folders:
        folder.mkdir()
    for path in store.layout.logs.iterdir():
        (layout.logs / path.name).write_bytes(path.read_bytes())
    layout.tombstones.write_bytes(b'{"model_call_ids":["cleared"]}\n')
    layout.capture_file(A).write_bytes(b"{")
    after = OtherBoot()
    assert recover(layout, after) == 1
    assert after.opened == {}
    disk.accesses, disk.unlocked = after.accesses, after.unlocked


ACTS = (
    append,
    append_where_it_was_removed,
    append_behind_a_torn_line,
    read,
    clear,
    clear_among_many,
    repair,
)


@pytest.mark.parametrize(
    ("act", "local"),
    [*((act, local) for act in ACTS for local in (True, False)), (put_back, True)],
)
def test_a_capture_file_is_held_while_it_is_read_or_changed(
    tmp_path: Path, act: Callable[[CaptureStore, WatchedDisk], None], local: bool
) -> None:
    disk = WatchedDisk(local=local)
    store = CaptureStore(tmp_path, disk=disk)
    store.submit(row("first")).result()
    disk.accesses = 0
    act(store, disk)

    assert disk.accesses > 0
    assert disk.unlocked == []
    store.close()
    assert disk.opened == {}
