"""What surrounds the driver, for tests: rows on disk, an agent that answers as told, files read."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from nemo_gym.rollouts.collect import CollectOptions, StopSignal
from nemo_gym.rollouts.paths import RunFiles
from nemo_gym.rollouts.prepare import RunRequest, prepare_run
from nemo_gym.rollouts.run import RunReport, collect_run

__all__ = [
    "FakeAgent",
    "FakeAnswer",
    "Row",
    "collect",
    "files_of",
    "lines_of",
    "pairs_of",
    "put",
    "rows_of",
    "text_of",
    "write_rows",
]

Row = dict[str, Any]


class FakeAnswer:
    """A response of a server."""

    def __init__(self, status: int, body: object) -> None:
        self.status = status
        self._body = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def read(self) -> bytes:
        return self._body


async def _solve(row: Row) -> FakeAnswer:
    return FakeAnswer(200, {**row, "reward": 1.0})


class FakeAgent:
    """Stands in for a `ServerClient` whose agent answers `/run` by a function of the row."""

    def __init__(self, run: Callable[[Row], Awaitable[FakeAnswer]] = _solve) -> None:
        self._run = run
        self.rows: list[Row] = []
        """Every row that was sent to `/run`."""
        self.aggregated: list[list[Row]] = []
        """Verify responses of every call of `/aggregate_metrics`."""
        self.running = 0
        self.most_running = 0
        self.custom_metrics: FakeAnswer = FakeAnswer(200, {"custom": False})
        self.metrics: FakeAnswer = FakeAnswer(404, {})

    async def get(self, server_name: str, url_path: str) -> FakeAnswer:
        assert (server_name, url_path) == ("solver", "/aggregate_metrics")
        return self.custom_metrics

    async def post(
        self, server_name: str, url_path: str, *, spread: str = "rollout", json: bytes
    ) -> FakeAnswer:
        assert server_name == "solver"
        row = _loads(json)
        if url_path == "/aggregate_metrics":
            self.aggregated.append(row["verify_responses"])
            return self.metrics
        assert (url_path, spread) == ("/run", "load")
        self.rows.append(row)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            # A turn of the loop, so that rollouts do run beside each other.
            await asyncio.sleep(0)
            return await self._run(row)
        finally:
            self.running -= 1


def _loads(data: bytes) -> Row:
    value: Row = json.loads(data)
    return value


def rows_of(count: int) -> list[Row]:
    """Return simple task rows."""
    return [{"responses_create_params": {"input": f"task {n}"}, "n": n} for n in range(count)]


def write_rows(path: Path, rows: Iterable[Row]) -> Path:
    """Write a JSONL file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def lines_of(path: Path) -> list[Row]:
    """Read a JSONL file; every line must be whole."""
    text = path.read_bytes()
    assert text == b"" or text.endswith(b"\n")
    return [json.loads(line) for line in text.splitlines()]


def pairs_of(path: Path) -> list[tuple[int, int]]:
    """Return the pairs of a JSONL file in order of its lines."""
    return [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in lines_of(path)]


async def collect(
    output: Path,
    rows: list[Row] | Path,
    client: FakeAgent | None = None,
    *,
    tree: Row | None = None,
    options: CollectOptions | None = None,
    stop: StopSignal | None = None,
    **request: Any,
) -> RunReport:
    """Run `rows` on an agent and return how the run ended."""
    inputs = rows if isinstance(rows, Path) else write_rows(output.with_name("rows.jsonl"), rows)
    asked = RunRequest((inputs,), output, **{"agent": "solver", **request})
    capture_dir = None
    if tree and tree.get("observability_enabled"):
        capture_dir = Path(tree["model_call_capture_dir"])
    run = prepare_run(asked, tree or {}, {"solver"}, capture_dir=capture_dir)
    try:
        run.begin()
        return await collect_run(run, client or FakeAgent(), options=options, stop=stop)
    finally:
        run.close()


def put(path: Path, text: str) -> Path:
    """Write a file."""
    path.write_text(text)
    return path


def text_of(path: Path) -> str:
    """Read a file."""
    return path.read_text()


def files_of(output: Path) -> RunFiles:
    """Return the files beside an output."""
    return RunFiles(output)
