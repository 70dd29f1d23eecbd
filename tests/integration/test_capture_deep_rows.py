"""Rows that the store itself wrote are good rows for every reader, however deep they nest."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from nemo_gym.capture.exchange import exchange_line
from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.jsonl import Damaged
from nemo_gym.ids import RolloutId
from nemo_gym.observability.model_calls import read_model_call_records
from nemo_gym.observability.repair import repair_rollout
from nemo_gym.observability.salvage import rows_within
from nemo_gym.observability.summaries import summarize
from support.taps import JSON, Led

A = RolloutId("0-0")
DEPTHS = range(900, 1040)
T = TypeVar("T")


class _Call:
    """A call whose request nests so deep; its row is made on the store's own thread."""

    rollout_id = A

    def __init__(self, depth: int) -> None:
        self._depth = depth
        led = Led()
        led.tap.request_body(b'{"seed":1e400,"x":%b}' % (b"[" * depth + b"]" * depth))
        led.start(JSON)
        led.send(b'{"id":"r","usage":{"prompt_tokens":1,"completion_tokens":1}}', more=False)
        self._tapped = led.end()

    def row(self) -> Row:
        call_id = f"c{self._depth}"
        line = exchange_line(self._tapped, None, model_call_id=call_id, model_ref_name="m")
        return Row(A, call_id, line)


@pytest.fixture
async def store(tmp_path: Path) -> CaptureStore:
    store = CaptureStore(tmp_path)
    for depth in DEPTHS:
        assert await store.keep(_Call(depth)) is None
    store.close()
    return store


def _from_a_deeper_stack(frames: int, read: Callable[[], T]) -> T:
    return _from_a_deeper_stack(frames - 1, read) if frames else read()


@pytest.mark.parametrize("frames", [0, 300])
def test_every_reader_finds_all_of_them(store: CaptureStore, frames: int) -> None:
    (path,) = store.directory.glob("*.jsonl")
    stored = path.read_bytes()
    joined = stored.replace(b"\n", b"")

    items = _from_a_deeper_stack(frames, lambda: store.read(A))
    records = _from_a_deeper_stack(frames, lambda: read_model_call_records(store, A))
    summary = _from_a_deeper_stack(frames, lambda: summarize(store, A))
    repaired = _from_a_deeper_stack(frames, lambda: repair_rollout(store, A))
    within = _from_a_deeper_stack(frames, lambda: list(rows_within(joined)))

    assert [item["model_call_id"] for item in items if not isinstance(item, Damaged)] == [
        f"c{depth}" for depth in DEPTHS
    ]
    assert (
        sum(record.request is not None for record in records) > 60
    )  # deeper ones are kept as text
    assert (summary.calls, summary.damaged, summary.tokens_in) == (len(DEPTHS), 0, len(DEPTHS))
    assert repaired == []
    assert path.read_bytes() == stored
    assert len(within) == len(DEPTHS)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("verify", ": all whole"),
        ("repair", "0 files repaired"),
        ("ls", " 140 "),
        ("show 0-0", "call 139"),
        ("show 0-0 --json", '"model_call_id": "c1039"'),
        ("tail -n 140", "0-0"),
    ],
)
def test_every_command_takes_them(store: CaptureStore, command: str, said: str) -> None:
    ran = subprocess.run(
        [Path(sys.executable).with_name("gym"), "capture", *command.split(), "--dir", "."],
        cwd=store.directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert said in ran.stdout
    assert "damaged" not in ran.stdout
