"""A power cut at any moment: what was let go is there, once, and what was cleared stays gone."""

import random
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.jsonl import Damaged
from nemo_gym.ids import RolloutId
from support.disks import ForgetfulDisk, Snapshot

ROLLOUTS = [RolloutId("0-0"), RolloutId("1-0"), RolloutId("1-1")]


@dataclass
class Ledger:
    """What the store has promised so far."""

    submitted: set[str] = field(default_factory=set)
    released: set[str] = field(default_factory=set)
    clearing: set[str] = field(default_factory=set)
    cleared: set[str] = field(default_factory=set)

    def release(self, call_id: str, _: object) -> None:
        self.released.add(call_id)

    def copy(self) -> "Ledger":
        return Ledger(*(set(s) for s in vars(self).values()))


def use(store: CaptureStore, ledger: Ledger, rng: random.Random) -> None:
    """Write rows of many sizes, clear now and then, as a server and a collector would."""
    for number in range(30):
        rollout = rng.choice(ROLLOUTS)
        call_id = f"call-{number}"
        filler = "x" * rng.choice([1, 50, 700])
        line = f'{{"model_call_id":"{call_id}","rollout":"{rollout}","f":"{filler}"}}'.encode()
        ledger.submitted.add(call_id)
        future = store.submit(Row(rollout, call_id, line))
        future.add_done_callback(partial(ledger.release, call_id))
        if rng.random() < 0.3:
            future.result()
        if rng.random() < 0.1:
            store.flush()
            gone = {c for c in ledger.released if where(store, c) == rollout}
            ledger.clearing |= gone
            store.clear([rollout])
            ledger.cleared |= gone
    store.flush()


def where(store: CaptureStore, call_id: str) -> RolloutId | None:
    """Return the rollout whose file holds a row."""
    found = (r for r in ROLLOUTS if call_id in ids(store, r))
    return next(found, None)


def ids(store: CaptureStore, rollout: RolloutId) -> list[str]:
    rows = store.read(rollout)
    return [row["model_call_id"] for row in rows if not isinstance(row, Damaged)]


def record(
    root: Path, seed: int, cut_at: int, *, close: bool, kind: str = "local"
) -> tuple[Snapshot, Ledger]:
    """Use a store and cut the power at operation `cut_at`, or at the end.

    `kind` of file system: `local`, `network`, or `lockless` (a network one without locks).
    """
    disk, ledger = (
        ForgetfulDisk(root, cut_at, local=kind == "local", lockless=kind == "lockless"),
        Ledger(),
    )
    disk.observe = ledger.copy
    store = CaptureStore(root / "captures", disk=disk, segment_bytes=4096)
    store.open_for_writing()
    use(store, ledger, random.Random(seed))  # noqa: S311 - a repeatable test
    if close:
        store.close()
    snapshot, seen = disk.snapshot, disk.cut_seen
    if snapshot is None:
        snapshot, seen = disk.cut(), [ledger.copy()]
    store.close()
    found = seen[0]
    assert isinstance(found, Ledger)
    return snapshot, found


def check(store: CaptureStore, ledger: Ledger) -> None:
    found = [call_id for rollout in ROLLOUTS for call_id in ids(store, rollout)]
    assert len(found) == len(set(found))
    assert set(found) >= ledger.released - ledger.clearing
    assert not set(found) & ledger.cleared
    assert set(found) <= ledger.submitted
    for rollout in ROLLOUTS:
        for row in store.read(rollout):
            assert isinstance(row, Damaged) or row["rollout"] == rollout


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**20), st.integers(1, 400), st.booleans(), st.booleans())
def test_what_was_let_go_is_there_after_a_power_cut(
    seed: int, cut_at: int, more: bool, close: bool
) -> None:
    rng = random.Random(seed)  # noqa: S311 - a repeatable test
    with TemporaryDirectory(dir="/dev/shm") as folder:
        root = Path(folder) / "before"
        root.mkdir()
        snapshot, ledger = record(root, seed, cut_at, close=close)
        after = Path(folder) / "after"
        snapshot.restore(root, after, rng if more else None)
        store = CaptureStore(after / "captures")

        check(store, ledger)
        store.close()


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 2**20),
    st.integers(1, 400),
    st.booleans(),
    st.sampled_from(["network", "lockless"]),
)
def test_what_was_let_go_is_there_after_a_power_cut_without_a_commit_log(
    seed: int, cut_at: int, more: bool, kind: str
) -> None:
    rng = random.Random(seed)  # noqa: S311 - a repeatable test
    with TemporaryDirectory(dir="/dev/shm") as folder:
        root, after = Path(folder) / "before", Path(folder) / "after"
        root.mkdir()
        snapshot, ledger = record(root, seed, cut_at, close=False, kind=kind)
        snapshot.restore(root, after, rng if more else None)
        store = CaptureStore(after / "captures")

        check(store, ledger)
        store.close()


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**20), st.integers(100, 400), st.integers(1, 60))
def test_a_second_power_cut_while_recovering_loses_nothing(
    seed: int, cut_at: int, second_cut: int
) -> None:
    rng = random.Random(seed)  # noqa: S311 - a repeatable test
    with TemporaryDirectory(dir="/dev/shm") as folder:
        root, after, later = (Path(folder) / name for name in ("before", "after", "later"))
        root.mkdir()
        snapshot, ledger = record(root, seed, cut_at, close=False)
        snapshot.restore(root, after, rng)
        disk = ForgetfulDisk(after, -1, boot="the boot after the cut")
        disk.sync_file_system(after)
        disk.operations, disk.cut_at = 0, second_cut
        CaptureStore(after / "captures", disk=disk).rollouts()
        again = disk.snapshot or disk.cut()
        again.restore(after, later, rng)

        check(CaptureStore(later / "captures"), ledger)
