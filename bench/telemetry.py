"""What telemetry costs: CPU of a forwarded model call, and of a rollout, with it off and on.

    python bench/telemetry.py [--calls 1000] [--slices 60] [--restarts 6] [--rollouts 2000]
                              [--rounds 5] [--modes "off;on;off again"]

First the steps themselves, in a loop in this process. Then calls through a whole model server whose
provider answers from memory: without sockets little else moves, and a difference of a microsecond
can be told. Then whole calls and rollouts: off, on and on with traces take turns, in short slices
and another order each time; a figure is the median over slices of the difference to the "off" of
the same slice, so that a drifting machine hits all alike, "give or take" twice the standard error
of its mean. Servers are started anew several times, since two processes of the same code differ by
where its parts lie in memory; the slices of one start give one figure.
A server under test has a core for itself, where there are two or more, and the others the rest.
A collector in a process of its own takes what is sent; its CPU, the provider's and the load's are
not counted. Two servers with telemetry off run side by side: what they differ by cannot be told
apart. "nothing counted" is off without the counts that `gym top` always shows: what those cost.
"""

import argparse
import asyncio
import json
import logging
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import uvloop

from nemo_gym.responses_api_models.openai_model.app import OpenAIModel, OpenAIModelConfig
from nemo_gym.runtime.memory import settle_memory
from nemo_gym.servers import forward
from nemo_gym.servers.forward import Forwarder
from nemo_gym.servers.forward_timing import timed_call
from nemo_gym.servers.raw import raw_route, send_json
from nemo_gym.servers.serve import AppServer, bind_socket
from nemo_gym.servers.stack import new_app
from nemo_gym.telemetry.model_calls import count_tokens, model_call_started
from nemo_gym.telemetry.observer import observe_event_loop
from nemo_gym.telemetry.providers import start_telemetry
from nemo_gym.telemetry.tracing import inject, span
from nemo_gym.transport.base import Call
from nemo_gym.transport.directory import Directory
from nemo_gym.transport.fake import FakeReply
from nemo_gym.transport.http import HttpTransport
from nemo_gym.transport.server_client import ServerClient

ROOT = Path(__file__).resolve().parent.parent
GYM = Path(sys.executable).parent / "gym"
TEXT = "x" * 1280
CHAT = "/v1/chat/completions"
REQUEST = json.dumps(
    {"messages": [{"role": "user", "content": "y" * 1960}], "model": "m", "temperature": 0}
).encode()
ON = {"metrics": {"enabled": True, "export_interval_s": 5}}
UNCOUNTED = "nothing counted"
"""Off, and the calls of a model server not even counted for `gym top`: what that costs."""
MODES: dict[str, dict[str, Any]] = {
    "off": {},
    "off again": {},
    UNCOUNTED: {},
    "on": ON,
    "on, 10 % traced": {**ON, "traces": {"enabled": True, "sample_ratio": 0.1}},
    "on, all traced": {**ON, "traces": {"enabled": True}},
}
STEP_MODES: dict[str, dict[str, Any]] = {
    "off": {},
    "on": ON,
    "on, not sampled": {**ON, "traces": {"enabled": True, "sample_ratio": 0.0}},
    "on, sampled": {**ON, "traces": {"enabled": True}},
}
SCOPE: dict[str, Any] = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "POST",
    "path": CHAT,
    "raw_path": CHAT.encode(),
    "query_string": b"",
    "root_path": "",
    "headers": [(b"host", b"bench"), (b"content-type", b"application/json")],
    "scheme": "http",
    "server": ("bench", 1),
    "client": ("bench", 2),
}
ROWS = 20
SHORT_SLICE = 1600


class AnswersAtOnce:
    """Stands for the connections to a provider."""

    open = True

    def __init__(self) -> None:
        message = {"role": "assistant", "content": TEXT}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 500, "completion_tokens": 300, "total_tokens": 800}
        usage |= {"prompt_tokens_details": {"cached_tokens": 100}}
        made = {"id": "c", "object": "chat.completion", "created": 1, "model": "other"}
        self.body = json.dumps({**made, "choices": [choice], "usage": usage}).encode()
        length = str(len(self.body)).encode()
        self.headers = [(b"content-type", b"application/json"), (b"content-length", length)]

    async def send(self, _call: Call) -> FakeReply:
        await asyncio.sleep(0)
        return FakeReply(200, self.headers, [self.body])

    async def aclose(self) -> None:
        """Have nothing to close."""


class Uncounted:
    """Stands for the timing of a call, of which nothing is kept."""

    over = True

    def answered_by(self, *_: object) -> None: ...

    def ended(self, *_: object) -> None: ...

    def retried(self, *_: object) -> None: ...

    def broken_off(self, *_: object) -> None: ...


def count(mode: str) -> None:
    """Have forwarders count their calls, or not."""
    uncounted: Any = Uncounted()
    vars(forward)["timed_call"] = timed_call if mode != UNCOUNTED else lambda *_: uncounted


@dataclass(frozen=True)
class Running:
    origin: str
    process: psutil.Process

    def cpu_s(self) -> float:
        """Seconds on a core so far, all threads, to the nanosecond (`/proc/…/schedstat`)."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


ALL_CORES = sorted(os.sched_getaffinity(0))


@contextmanager
def started(*command: str, under_test: bool = False) -> Generator[Running]:
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    if len(ALL_CORES) > 1:
        cores = ALL_CORES[:1] if under_test else ALL_CORES[1:]
        command = ("taskset", "-c", ",".join(map(str, cores)), *command)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environ)
    try:
        assert process.stdout is not None
        origin = json.loads(process.stdout.readline())["origin"]
        yield Running(origin, psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait(10)


def collect() -> None:
    """Be a collector that takes everything and keeps nothing."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Keep requests out of the log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(json.dumps({"origin": f"http://127.0.0.1:{server.server_port}"}), flush=True)
    server.serve_forever()


async def serve(mode: str, collector: str, provider: str) -> None:
    """Be a model server with telemetry in this mode."""
    count(mode)
    settings = with_collector(MODES[mode], collector)
    start_telemetry(settings, service_name="nemo_gym.server", instance="bench")
    model = model_server(provider)
    sock = bind_socket("127.0.0.1", 0)
    server = AppServer(model.setup_webserver(), sock, "policy_model")
    async with observe_event_loop("server"):
        await server.start()
        settle_memory()  # as a cell does
        print(json.dumps({"origin": f"http://127.0.0.1:{sock.getsockname()[1]}"}), flush=True)
        await asyncio.Event().wait()


async def load(origin: str, calls: int, in_flight: int) -> None:
    transport = HttpTransport(origin)
    left = iter(range(calls))

    async def worker() -> None:
        for _ in left:
            reply = await transport.send(Call("POST", CHAT, [], REQUEST))
            await reply.read()
            assert reply.status == 200

    await asyncio.gather(*(worker() for _ in range(in_flight)))
    await transport.aclose()


def with_collector(settings: Mapping[str, Any], collector: str) -> dict[str, Any]:
    return {**settings, "otlp": {"endpoint": collector}} if settings else {}


async def call_app(app: Any, calls: int) -> float:
    """Return CPU in µs of a request to `app`, without sockets, 32 at a time."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": REQUEST, "more_body": False}

    async def send(_message: Any) -> None:
        """Drop what is answered."""

    async def worker() -> None:
        for _ in range(calls // 32):
            await app({**SCOPE}, receive, send)

    before = time.thread_time()
    await asyncio.gather(*(worker() for _ in range(32)))
    return (time.thread_time() - before) / calls * 1e6


async def step_costs(rounds: int) -> dict[str, dict[str, float]]:
    """Return CPU in µs of each step, by mode."""
    found: dict[str, dict[str, list[float]]] = {}
    app = new_app("bench", lambda inner: inner, lambda _path, exc: (500, {"error": str(exc)}))
    raw_route(app, CHAT, answer_after_a_turn, direct=True)
    for _ in range(rounds):
        for mode, settings in STEP_MODES.items():
            handle = start_telemetry(settings, service_name="bench", instance="bench")
            async with observe_event_loop("bench"):
                steps = {
                    "a request through the stack": await call_app(app, 6400),
                    "a call to a provider timed": looped(time_a_call),
                    "its tokens counted": looped(count_its_tokens),
                    "a rollout's span": looped(trace_a_rollout),
                }
            handle.shutdown()
            for step, cost in steps.items():
                found.setdefault(step, {}).setdefault(mode, []).append(cost)
    return {
        step: {mode: statistics.median(costs) for mode, costs in modes.items()}
        for step, modes in found.items()
    }


async def answer_after_a_turn(_scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await asyncio.sleep(0)
    await send_json(send, 200, {"status": "ok"})


def looped(step: Callable[[], None], times: int = 10_000) -> float:
    before = time.thread_time()
    for _ in range(times):
        step()
    return (time.thread_time() - before) / times * 1e6


def time_a_call() -> None:
    with model_call_started("openai", "m") as call:
        call.answered(200, stream=True)
        call.first_chunk()


def count_its_tokens() -> None:
    count_tokens("openai", "m", tokens_in=100, tokens_out=10, cache_read=50)


def trace_a_rollout() -> None:
    headers: list[tuple[bytes, bytes]] = []
    with span("gym.rollout", root=True):
        inject(headers)


def model_server(provider: str) -> OpenAIModel:
    config = OpenAIModelConfig(
        name="policy_model", openai_base_url=provider, openai_api_key="k", openai_model="other"
    )
    return OpenAIModel(config=config, server_client=ServerClient(Directory(), {}))


async def through_a_server(slices: int) -> dict[str, list[float]]:
    """Return CPU in µs of a call through a model server without sockets, by mode and slice."""
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    app = new_app("bench", lambda inner: inner, lambda _path, exc: (500, {"error": str(exc)}))
    forwarder = Forwarder(
        model_server("http://127.0.0.1:9").provider(), transports=[AnswersAtOnce()]
    )
    for route in forwarder.routes():
        raw_route(app, route.path, route.app, route.methods, direct=True)
    shuffle = random.Random(1).sample  # noqa: S311 - the same order each time
    with started(sys.executable, __file__, "--collect") as collector:
        for _ in range(slices):
            for mode in shuffle(list(MODES), len(MODES)):
                count(mode)
                settings = with_collector(MODES[mode], collector.origin)
                handle = start_telemetry(settings, service_name="bench", instance="bench")
                async with observe_event_loop("bench"):
                    await call_app(app, SHORT_SLICE // 5)
                    found[mode].append(await call_app(app, SHORT_SLICE))
                handle.shutdown()
    return found


def report_steps(found: Mapping[str, Mapping[str, float]]) -> None:
    print("Steps on the way, µs")
    print(f"  {'':30}" + "".join(f"{mode:>18}" for mode in STEP_MODES))
    for step, costs in found.items():
        print(f"  {step:30}" + "".join(f"{costs[mode]:18.2f}" for mode in STEP_MODES))


def request_costs(calls: int, slices: int, restarts: int) -> dict[str, list[float]]:
    """Return CPU in µs a call of the server process, by mode and start."""
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    for start in range(restarts):
        for mode, costs in costs_of_servers(calls, max(1, slices // restarts), start).items():
            found[mode].append(statistics.median(costs))
    return found


def costs_of_servers(calls: int, slices: int, start: int) -> dict[str, list[float]]:
    """Return CPU in µs a call of one server process a mode, by mode and slice."""
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    shuffle = random.Random(start).sample  # noqa: S311 - the same order each time
    with ExitStack() as stack:
        collector = stack.enter_context(started(sys.executable, __file__, "--collect"))
        answer = json.dumps({"answer": {"text": TEXT}})
        provider = stack.enter_context(
            started(sys.executable, "-m", "support.provider", "--behaviour", answer)
        )
        servers = {
            mode: stack.enter_context(
                started(
                    sys.executable,
                    __file__,
                    "--serve",
                    mode,
                    collector.origin,
                    provider.origin,
                    under_test=True,
                )
            )
            for mode in shuffle(list(MODES), len(MODES))
        }
        for server in servers.values():
            uvloop.run(load(server.origin, 2000, 64))
        if len(ALL_CORES) > 1:
            os.sched_setaffinity(0, ALL_CORES[1:])
        for _ in range(slices):
            for mode in shuffle(list(servers), len(servers)):
                before = servers[mode].cpu_s()
                uvloop.run(load(servers[mode].origin, calls, 64))
                found[mode].append((servers[mode].cpu_s() - before) / calls * 1e6)
        os.sched_setaffinity(0, ALL_CORES)
    return found


def rollout_costs(rollouts: int, rounds: int) -> dict[str, list[float]]:
    """Return CPU in µs a rollout of every process of a run, by mode and round."""
    modes = {mode: settings for mode, settings in MODES.items() if mode != UNCOUNTED}
    found: dict[str, list[float]] = {mode: [] for mode in modes}
    with ExitStack() as stack:
        collector = stack.enter_context(started(sys.executable, __file__, "--collect"))
        provider = stack.enter_context(
            started(sys.executable, "-m", "support.provider", "--text", "Answer: B")
        )
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        repeats = max(1, rollouts // ROWS)
        for _ in range(rounds):
            for mode, settings in modes.items():
                extra = overrides(with_collector(settings, collector.origin))
                short = run_cpu_s(provider.origin, folder, 1, extra)
                long = run_cpu_s(provider.origin, folder, repeats + 1, extra)
                found[mode].append((long - short) / (repeats * ROWS) * 1e6)
    return found


def run_cpu_s(origin: str, folder: Path, repeats: int, extra: list[str]) -> float:
    command = [
        str(GYM), "eval", "run", "--resources-server", "mcqa", "--model-type", "openai_model",
        "--model", "bench", "--model-url", f"{origin}/v1", "--model-api-key", "none",
        "--agent", "mcqa_simple_agent", "--input", "resources_servers/mcqa/data/example.jsonl",
        "--output", str(folder / "out.jsonl"), "--overwrite", "--limit", str(ROWS),
        "--num-repeats", str(repeats), "--concurrency", "64", "--json", *extra,
    ]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in {0, 1}:
        assert process.stderr is not None
        sys.exit(process.stderr.read().decode())
    return usage.ru_utime + usage.ru_stime


def overrides(settings: Mapping[str, Any], prefix: str = "telemetry") -> list[str]:
    """Return `++key=value` for every leaf."""
    told: list[str] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            told += overrides(value, f"{prefix}.{key}")
        else:
            told.append(f"++{prefix}.{key}={json.dumps(value)}")
    return told


def report(title: str, found: Mapping[str, list[float]]) -> dict[str, Any]:
    print(title)
    print(f"  {'':18}{'µs':>10}{'more µs':>10}{'mean':>10}{'give or take':>14}{'more':>9}")
    rows: dict[str, Any] = {}
    off = found["off"]
    for mode, costs in found.items():
        differences = [cost - base for cost, base in zip(costs, off, strict=True)]
        more, mean = statistics.median(differences), statistics.mean(differences)
        take = 2 * statistics.stdev(differences) / len(costs) ** 0.5 if len(costs) > 1 else math.nan
        rows[mode] = {
            "us": statistics.median(costs),
            "more_us": more,
            "more_share": more / statistics.median(off),
            "mean_more_us": mean,
            "give_or_take_us": take,
            "costs": costs,
        }
        told = f"{rows[mode]['us']:10.1f}{more:10.1f}{mean:10.1f}{take:14.1f}"
        print(f"  {mode:18}{told}{rows[mode]['more_share']:9.1%}")
    return rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--calls", type=int, default=1000, help="a slice; 0 leaves calls out")
    options.add_argument("--slices", type=int, default=60)
    options.add_argument("--restarts", type=int, default=6, help="of the servers")
    options.add_argument("--modes", help="only these, with a semicolon between two")
    options.add_argument("--rollouts", type=int, default=2000, help="0 leaves rollouts out")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--json", type=Path, help="also write the figures here")
    options.add_argument("--collect", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.modes:
        for mode in set(MODES) - set(given.modes.split(";")):
            del MODES[mode]
    if given.collect:
        collect()
    elif given.serve:
        uvloop.run(serve(*given.serve))
    else:
        compare(given)


def compare(given: argparse.Namespace) -> None:
    parts: list[tuple[str, Callable[[], dict[str, list[float]]]]] = []
    if given.slices:
        title = "A model call through its server, 2 KB, no sockets: CPU of the event loop"
        parts.append((title, lambda: asyncio.run(through_a_server(given.slices))))
    if given.calls and given.slices:
        title = "A forwarded model call, 2 KB: CPU of the model server"
        parts.append((title, partial(request_costs, given.calls, given.slices, given.restarts)))
    if given.rollouts and given.rounds:
        title = "A rollout of mcqa, one cell: CPU of the whole run"
        parts.append((title, lambda: rollout_costs(given.rollouts, given.rounds)))
    logging.disable()  # no collector is there for the steps, and that is no news
    steps = asyncio.run(step_costs(given.rounds))
    report_steps(steps)
    figures: dict[str, Any] = {"steps": steps}
    figures |= {title: report(title, measure()) for title, measure in parts}
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
