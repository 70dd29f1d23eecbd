"""What capture adds to a call inside one process: CPU seconds per 1,000 calls, part by part.

    python bench/capture_path.py [--directory DIR] [--calls N] [--rounds R] [--request BYTES]
                                 [--work LOOPS] [--in-flight N] [--only off,rows,store]

An ASGI app that answers JSON runs behind `model_call_stack`, once without a store (`off`), once
with one that keeps nothing (`rows`: the cost of making rows), once with a real one (`store`), in
turns; the figures are medians, the differences medians of paired rounds. `--work` is how much
the app computes for each call, as a forwarder would: it decides how many rows meet in a batch.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import uvloop

from nemo_gym.capture.middleware import model_call_stack
from nemo_gym.capture.row import EndedCall, Row, RowStore
from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import RolloutId
from nemo_gym.runtime.memory import settle_memory

ROLLOUTS = 64


class _NoClaim:
    def release(self) -> None:
        pass


class KeepsNothing:
    """A store whose rows are durable at once."""

    claimed = _NoClaim()

    def claim(self, rollout_id: RolloutId) -> _NoClaim:
        return self.claimed

    def submit(self, row: Row, claim: Any = None) -> "Future[None]":
        raise NotImplementedError

    def keep(self, call: EndedCall, claim: Any = None) -> "asyncio.Future[Exception | None]":
        call.row()
        future: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    def mark_incomplete(self, rollout_id: RolloutId, reason: str, claim: Any = None) -> None:
        raise SystemExit(f"a row of {rollout_id} is lost: {reason}")


def chat_request(size: int) -> bytes:
    text = "The quick brown fox jumps over the lazy dog. " * (size // 40)
    body = {"model": "m", "messages": [{"role": "user", "content": text[: size - 60]}]}
    return json.dumps(body).encode()


def chat_response(size: int) -> bytes:
    message = {"role": "assistant", "content": ("Lorem ipsum dolor. " * size)[: size - 250]}
    usage = {"prompt_tokens": 500, "completion_tokens": 400, "total_tokens": 900}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps({**body, "choices": [choice], "usage": usage}).encode()


class Provider:
    """Reads a request, computes a while, answers in the two messages a forwarder sends."""

    def __init__(self, response: bytes, work: int) -> None:
        self._response, self._work = response, work
        self._headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(response)).encode()),
            (b"date", b"Mon, 01 Jan 2024 00:00:00 GMT"),
            (b"x-request-id", b"req_0123456789abcdef"),
        ]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await asyncio.sleep(0)
        for _ in range(self._work):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._response, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


HEADERS = [
    (b"host", b"127.0.0.1:8000"),
    (b"accept", b"application/json"),
    (b"content-type", b"application/json"),
    (b"authorization", b"Bearer sk-0123456789"),
    (b"user-agent", b"OpenAI/Python 1.0"),
    (b"x-stainless-lang", b"python"),
    (b"x-stainless-os", b"Linux"),
    (b"content-length", b"2048"),
]


class Load:
    """`in_flight` clients, each with its own calls one after the other."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.request = chat_request(options.request)
        self.calls, self.in_flight = options.calls, options.in_flight
        self.waits: list[float] = []

    async def run(self, app: Any) -> None:
        self.waits = []
        each = self.calls // self.in_flight
        await asyncio.gather(*(self._client(app, n, each) for n in range(self.in_flight)))

    async def _client(self, app: Any, number: int, calls: int) -> None:
        path = f"/ng-rollout/{number % ROLLOUTS}-0/v1/chat/completions"
        message = {"type": "http.request", "body": self.request, "more_body": False}

        async def receive() -> Any:
            return message

        async def send(_: Any) -> None:
            pass

        for _ in range(calls):
            began = time.perf_counter()
            scope = {
                "type": "http",
                "asgi": {"version": "3.0"},
                "http_version": "1.1",
                "method": "POST",
                "scheme": "http",
                "path": path,
                "raw_path": path.encode(),
                "query_string": b"",
                "headers": HEADERS,
                "client": ("127.0.0.1", 1),
                "server": ("127.0.0.1", 2),
            }
            await app(scope, receive, send)
            self.waits.append(time.perf_counter() - began)


def one_round(kind: str, directory: Path, load: Load, provider: Provider) -> tuple[float, float]:
    """Return CPU seconds per 1,000 calls and the 99th percentile of a call in ms."""
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        store: RowStore | None = None
        if kind == "rows":
            store = KeepsNothing()
        elif kind == "store":
            store = CaptureStore(Path(folder))
            store.open_for_writing()
        app = model_call_stack(provider, store=store, model_ref_name="policy_model")
        began = time.process_time()
        uvloop.run(load.run(app))
        used = time.process_time() - began
        if isinstance(store, CaptureStore):
            store.close()
    waits = sorted(load.waits)
    return used / len(waits) * 1000, waits[len(waits) * 99 // 100] * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description="What capture adds to a call, part by part.")
    parser.add_argument("--directory", type=Path, default=Path(), help="on the disk to measure")
    parser.add_argument("--calls", type=int, default=6400, help="in each round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--request", type=int, default=2048, help="bytes")
    parser.add_argument("--response", type=int, default=1600, help="bytes")
    parser.add_argument("--work", type=int, default=6000, help="loops of the app in each call")
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--only", default="off,rows,store")
    options = parser.parse_args()
    load = Load(options)
    provider = Provider(chat_response(options.response), options.work)
    kinds = options.only.split(",")
    runs: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    settle_memory()
    for _ in range(options.rounds):
        for kind in kinds:
            runs[kind].append(one_round(kind, options.directory, load, provider))
    print(f"{'':8}{'CPU s/1000':>12}{'above off':>12}{'p99 ms':>10}")
    for kind, found in runs.items():
        pairs = zip(found, runs[kinds[0]], strict=True)
        added = statistics.median(this[0] - base[0] for this, base in pairs)
        cpu = statistics.median(cpu for cpu, _ in found)
        p99 = statistics.median(p99 for _, p99 in found)
        print(f"{kind:8}{cpu:12.4f}{added:12.4f}{p99:10.2f}")


if __name__ == "__main__":
    main()
