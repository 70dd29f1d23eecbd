"""The driver's evidence: which ids are in use, what is cleared and counted, what a run warns of."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from nemo_gym.capture.row import Row as CapturedRow
from nemo_gym.capture.store import CaptureStore
from nemo_gym.errors import OutputUnusable
from nemo_gym.files.disk import REAL_DISK
from nemo_gym.ids import RolloutId, rollout_id_of_record
from nemo_gym.observability.model_calls import CAPTURE_DRAIN_TIMEOUT_S
from nemo_gym.rollouts.collect import CollectOptions, StopSignal
from nemo_gym.rollouts.evidence import Evidence
from nemo_gym.rollouts.manifest import read_manifest
from nemo_gym.rollouts.named_captures import NamedCaptures
from nemo_gym.rollouts.progress import Progress
from support.disks import DISKS
from support.rollouts import FakeAgent, FakeAnswer, Row, collect, files_of, lines_of, rows_of

A = RolloutId("0-0")


def captured(rollout_id: RolloutId, call_id: str = "c") -> CapturedRow:
    return CapturedRow(rollout_id, call_id, f'{{"model_call_id":"{call_id}"}}'.encode())


def by_a_row(store: CaptureStore) -> None:
    store.submit(captured(A)).result()


def by_a_row_that_was_cleared(store: CaptureStore) -> None:
    by_a_row(store)
    store.clear([A])


def by_a_call_under_way(store: CaptureStore) -> None:
    store.claim(A)


def by_nobody(store: CaptureStore) -> None:
    store.submit(captured(RolloutId("0-0-a1"))).result()
    store.claim(RolloutId("0-1"))


@pytest.mark.parametrize(
    ("use", "kind", "used"),
    [
        *((by_a_row, kind, True) for kind in DISKS),
        *((by_a_row_that_was_cleared, kind, True) for kind in DISKS),
        (by_a_call_under_way, "local", True),
        (by_a_call_under_way, "network", True),
        *((by_nobody, kind, False) for kind in DISKS),
    ],
)
def test_an_id_is_in_use_once_a_call_of_it_has_begun(
    tmp_path: Path, use: Callable[[CaptureStore], None], kind: str, used: bool
) -> None:
    evidence = Evidence([tmp_path], Progress(total=1))
    store = CaptureStore(tmp_path, disk=DISKS[kind]())
    use(store)  # when the run has begun, by a server of the one before

    assert evidence.is_used(A) is used
    store.close()


@pytest.mark.parametrize("kind", DISKS)
def test_what_is_replaced_is_counted_on_every_kind_of_disk(tmp_path: Path, kind: str) -> None:
    progress = Progress(total=3)
    store = CaptureStore(tmp_path, disk=DISKS[kind]())
    for task in (0, 0, 2):
        store.submit(captured(RolloutId(f"{task}-0"), f"c{task}")).result()
    rows: list[Row] = [{"_ng_task_index": task, "_ng_rollout_index": 0} for task in range(2)]
    evidence = Evidence([tmp_path], progress)
    counts = []
    for _ in range(2):
        evidence.clear([*rows, {"no": "id"}])
        counts.append(progress.replaced_captures)

    assert counts == [1, 1]
    assert store.rollouts() == ["2-0"]
    store.close()


OWN = NamedCaptures([("0-0", "mine"), ("1-0", "other")])


@pytest.mark.parametrize("kind", DISKS)
@pytest.mark.parametrize(
    ("calls", "own", "replaced"),
    [
        (["mine"], OWN, 0),
        (["mine", "late"], OWN, 0),
        (["somebody's"], OWN, 1),
        (["other"], OWN, 1),
        (["mine"], None, 1),
        ([], OWN, 0),
    ],
)
def test_captures_of_what_is_overwritten_are_replaced_and_not_counted(
    tmp_path: Path, kind: str, calls: list[str], own: NamedCaptures | None, replaced: int
) -> None:
    progress = Progress(total=1)
    store = CaptureStore(tmp_path, disk=DISKS[kind]())
    for call_id in calls:
        store.submit(captured(A, call_id)).result()

    Evidence([tmp_path], progress, own).clear([{"_ng_task_index": 0, "_ng_rollout_index": 0}])

    assert progress.replaced_captures == replaced
    assert store.rollouts() == []
    store.close()


@pytest.mark.parametrize(
    "lines",
    [
        ['{"model_call_id":"torn","dia', '{"model_call_id":"mine"}'],
        ["\x00\x00", '{"dialect": "chat", "model_call_id": "mine"}'],
        ['{"model_call_id": "mine"}'],
    ],
)
def test_captures_are_known_whatever_became_of_their_first_line(
    tmp_path: Path, lines: list[str]
) -> None:
    (tmp_path / "0-0.capture.jsonl").write_text("".join(f"{line}\n" for line in lines))
    progress = Progress(total=1)

    Evidence([tmp_path], progress, OWN).clear([{"_ng_task_index": 0, "_ng_rollout_index": 0}])

    assert progress.replaced_captures == 0


def capturing(folder: Path) -> Row:
    return {"observability_enabled": True, "model_call_capture_dir": str(folder / "captures")}


def status_of(output: Path) -> str:
    manifest = read_manifest(files_of(output).manifest)
    assert manifest is not None
    return manifest.status


async def test_a_late_call_of_a_killed_run_stays_under_its_own_id(tmp_path: Path) -> None:
    """Its first call is still under way, so that nothing was captured when the run goes on."""
    store = CaptureStore(tmp_path / "captures")
    under_way = store.claim(A)
    called = asyncio.Event()

    async def hang(_: Row) -> FakeAnswer:
        called.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def call(row: Row) -> FakeAnswer:
        rollout_id = rollout_id_of_record(row)
        assert rollout_id is not None
        store.submit(captured(A, "late"), under_way).result()
        store.submit(captured(rollout_id, "new")).result()
        return FakeAnswer(200, {"reward": 1})

    output, tree = tmp_path / "x.jsonl", capturing(tmp_path)
    killed = asyncio.create_task(collect(output, rows_of(1), FakeAgent(hang), tree=tree))
    await called.wait()
    killed.cancel()
    with pytest.raises(asyncio.CancelledError):
        await killed
    assert status_of(output) == "interrupted"
    await collect(output, rows_of(1), FakeAgent(call), tree=tree, mode="resume")

    (row,) = lines_of(output)
    attached = row["ng_model_call_capture"]
    assert attached["rollout_id"] == "0-0-a1"
    assert [each["model_call_id"] for each in attached["calls"]] == ["new"]
    store.close()


async def test_a_call_that_is_still_being_written_is_waited_for(tmp_path: Path) -> None:
    store, loop = CaptureStore(tmp_path / "captures"), asyncio.get_running_loop()

    async def call(row: Row) -> FakeAnswer:
        rollout_id = rollout_id_of_record(row)
        assert rollout_id is not None
        claim = store.claim(rollout_id)
        loop.call_later(0.1, store.submit, captured(rollout_id), claim)
        return FakeAnswer(200, {"reward": 1})

    await collect(tmp_path / "x.jsonl", rows_of(2), FakeAgent(call), tree=capturing(tmp_path))

    for row in lines_of(tmp_path / "x.jsonl"):
        assert row["ng_model_call_capture"]["metrics"]["num_calls"] == 1
        assert "gaps" not in row["ng_model_call_capture"]
    store.close()


async def test_a_capture_that_somebody_holds_does_not_hold_the_loop(tmp_path: Path) -> None:
    store, loop = CaptureStore(tmp_path / "captures"), asyncio.get_running_loop()
    released: list[str] = []
    file = -1

    def release(by: str) -> None:
        if not released:
            released.append(by)
            REAL_DISK.close(file)

    async def call(row: Row) -> FakeAnswer:
        nonlocal file
        rollout_id = rollout_id_of_record(row)
        assert rollout_id is not None
        store.submit(captured(rollout_id)).result()
        file = REAL_DISK.open_append(store.layout.capture_file(rollout_id))
        REAL_DISK.locks.lock_exclusive(file)
        loop.call_later(0.1, release, "the loop")
        return FakeAnswer(200, {"reward": 1})

    late = threading.Timer(20, release, ("a thread, since the loop was held",))
    late.start()
    await collect(tmp_path / "x.jsonl", rows_of(1), FakeAgent(call), tree=capturing(tmp_path))
    late.cancel()

    assert released == ["the loop"]
    store.close()


async def test_captures_that_cannot_be_cleared_end_the_run_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    (tmp_path / "captures" / "1-0.capture.jsonl").mkdir(parents=True)
    agent = FakeAgent()

    with pytest.raises(OutputUnusable, match="old captures cannot be cleared") as told:
        await collect(tmp_path / "x.jsonl", rows_of(3), agent, tree=capturing(tmp_path))

    assert str(tmp_path / "captures") in str(told.value.where)
    assert agent.rows == []
    assert status_of(tmp_path / "x.jsonl") == "failed"


NOT_ONE = "NOT ONE MODEL CALL WAS CAPTURED"


async def test_a_run_that_was_stopped_does_not_say_that_nothing_was_captured(
    tmp_path: Path,
) -> None:
    """Nobody has looked: what runs is ended at once."""
    store, stop = CaptureStore(tmp_path / "captures"), StopSignal()

    async def call(row: Row) -> FakeAnswer:
        rollout_id = rollout_id_of_record(row)
        assert rollout_id is not None
        store.submit(captured(rollout_id)).result()
        store.claim(rollout_id)  # which somebody could wait for
        if row["n"] == 3:
            asyncio.get_running_loop().call_soon(stop.stop)
        await asyncio.Event().wait()
        raise AssertionError

    async with asyncio.timeout(CAPTURE_DRAIN_TIMEOUT_S - 1):
        report = await collect(
            tmp_path / "x.jsonl",
            rows_of(50),
            FakeAgent(call),
            tree=capturing(tmp_path),
            options=CollectOptions(concurrency=4),
            stop=stop,
        )

    assert report.failed == {"cancelled": 4}
    assert NOT_ONE not in str(report.warnings)
    store.close()


@pytest.mark.parametrize(
    ("rollouts", "calls", "said"),
    [(1, 0, NOT_ONE), (3, 0, NOT_ONE), (3, 1, "captured model call: 2"), (3, 3, "")],
)
async def test_rollouts_without_a_call_are_told_loudly_when_it_is_all_of_them(
    tmp_path: Path, rollouts: int, calls: int, said: str
) -> None:
    store = CaptureStore(tmp_path / "captures")

    async def call(row: Row) -> FakeAnswer:
        rollout_id = rollout_id_of_record(row)
        assert rollout_id is not None
        if row["n"] < calls:
            store.submit(captured(rollout_id)).result()
        return FakeAnswer(200, {"reward": 1})

    tree = capturing(tmp_path)
    report = await collect(tmp_path / "x.jsonl", rows_of(rollouts), FakeAgent(call), tree=tree)

    assert len(report.warnings) == bool(said)
    assert said in str(report.warnings)
    assert str(report.warnings).count(str(store.directory)) == (2 if calls == 0 else 0)
    gaps = [row["ng_model_call_capture"].get("gaps") for row in lines_of(tmp_path / "x.jsonl")]
    assert gaps.count([{"code": "model_call_capture_no_records"}]) == rollouts - calls
    store.close()


async def test_captures_that_cannot_even_be_looked_for_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("nemo_gym.rollouts.evidence.merge_model_call_capture_into_record", broken)
    report = await collect(tmp_path / "x.jsonl", rows_of(2), tree=capturing(tmp_path))

    assert report.finished == 2
    assert NOT_ONE in str(report.warnings)
