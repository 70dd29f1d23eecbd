"""What forwarding a model call costs: CPU seconds of the server process per 1,000 calls.

    python bench/forward.py [--calls 20000] [--in-flight 64] [--rounds 3]

A zero-delay provider, the server and the load each run in a process of their own on loopback.
Requests of 2 KB, answers of 1.6 KB; then streams, per chunk. Rounds are interleaved, the median
counts. `nginx proxy_pass` runs beside where nginx is installed, as the limit.
"""

import argparse
import asyncio
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import uvloop
from starlette.types import Receive, Scope, Send

from nemo_gym.responses_api_models.openai_model.app import OpenAIModel, OpenAIModelConfig
from nemo_gym.servers.serve import AppServer, bind_socket
from nemo_gym.transport.base import Call
from nemo_gym.transport.directory import Directory
from nemo_gym.transport.http import HttpTransport
from nemo_gym.transport.server_client import ServerClient

ROOT = Path(__file__).resolve().parent.parent
EVENTS = 200
TEXT = "x" * 1280
CHAT = "/v1/chat/completions"
REQUEST = json.dumps(
    {"messages": [{"role": "user", "content": "y" * 1960}], "model": "m", "temperature": 0}
).encode()
STREAM_REQUEST = REQUEST[:-1] + b',"stream":true}'


@dataclass(frozen=True)
class Running:
    origin: str
    process: psutil.Process

    def cpu_s(self) -> float:
        """Seconds of CPU so far, children included."""
        family = [self.process, *self.process.children(recursive=True)]
        return sum(sum(member.cpu_times()[:2]) for member in family)


@contextmanager
def started(*command: str) -> Generator[Running]:
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environ)
    try:
        assert process.stdout is not None
        origin = json.loads(process.stdout.readline())["origin"]
        yield Running(origin, psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def nginx_before(origin: str) -> Generator[Running]:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        conf = Path(folder, "nginx.conf")
        conf.write_text(
            f"daemon off; worker_processes 1; pid {folder}/pid; error_log stderr crit;\n"
            "events { worker_connections 8192; }\n"
            "http { access_log off; keepalive_requests 1000000; client_body_buffer_size 1m;\n"
            f"upstream p {{ server {origin.removeprefix('http://')}; keepalive 512;"
            " keepalive_requests 1000000; }\n"
            f"server {{ listen 127.0.0.1:{port} backlog=4096; location / {{\n"
            'proxy_pass http://p; proxy_http_version 1.1; proxy_set_header Connection "";\n'
            "proxy_buffering off; } } }\n"
        )
        process = subprocess.Popen([str(shutil.which("nginx")), "-p", folder, "-c", str(conf)])
        try:
            time.sleep(0.5)
            yield Running(f"http://127.0.0.1:{port}", psutil.Process(process.pid))
        finally:
            process.terminate()
            process.wait(10)


async def load(origin: str, body: bytes, calls: int, in_flight: int) -> None:
    transport = HttpTransport(origin)
    left = iter(range(calls))

    async def worker() -> None:
        for _ in left:
            reply = await transport.send(Call("POST", CHAT, [], body))
            await reply.read()
            assert reply.status == 200

    await asyncio.gather(*(worker() for _ in range(in_flight)))
    await transport.aclose()


def measured(server: Running, body: bytes, calls: int, in_flight: int) -> tuple[float, float]:
    """Return CPU seconds of the server and calls per second."""
    uvloop.run(load(server.origin, body, in_flight * 4, in_flight))
    cpu, began = server.cpu_s(), time.perf_counter()
    uvloop.run(load(server.origin, body, calls, in_flight))
    return server.cpu_s() - cpu, calls / (time.perf_counter() - began)


def serve(kind: str, provider: str) -> None:
    """Be the server under test."""
    uvloop.run(_serve(kind, provider))


async def _serve(kind: str, provider: str) -> None:

    config = OpenAIModelConfig(
        name="policy_model", openai_base_url=provider, openai_api_key="k", openai_model="other"
    )
    model = OpenAIModel(config=config, server_client=ServerClient(Directory(), {}))

    async def bare(scope: Scope, receive: Receive, send: Send) -> None:
        await model.forwarder.forward(scope, receive, send)

    app = model.setup_webserver() if kind == "stack" else bare
    sock = bind_socket("127.0.0.1", 0)
    server = AppServer(app, sock, "policy_model")
    await server.start()
    print(json.dumps({"origin": f"http://127.0.0.1:{sock.getsockname()[1]}"}), flush=True)
    await asyncio.Event().wait()


def compare(
    title: str,
    servers: dict[str, Running],
    rounds: int,
    run: Callable[[Running], tuple[float, ...]],
) -> None:
    results: dict[str, list[tuple[float, ...]]] = {name: [] for name in servers}
    for _ in range(rounds):
        for name, server in servers.items():
            results[name].append(run(server))
    print(title)
    for name, rows in results.items():
        figures = [statistics.median(column) for column in zip(*rows, strict=True)]
        print(f"  {name:32}", *(f"{figure:12.3f}" for figure in figures))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--calls", type=int, default=20_000)
    options.add_argument("--in-flight", type=int, default=64)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--serve", nargs=2, metavar=("KIND", "PROVIDER"), help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.serve:
        serve(*given.serve)
        return
    python = sys.executable
    behaviour = {"answer": {"text": TEXT}}
    slow = {"answer": {"text": TEXT, "deltas": EVENTS}, "piece_delay_s": 0.005}
    with ExitStack() as stack:
        provider, streamer = (
            stack.enter_context(
                started(python, "-m", "support.provider", "--behaviour", json.dumps(b))
            )
            for b in (behaviour, slow)
        )
        # Few and slow streams: chunks that catch up with each other would be counted as one.
        for title, behind, body, calls, in_flight, unit in (
            (
                "2 KB JSON: CPU s per 1,000 calls, calls/s",
                provider,
                REQUEST,
                given.calls,
                given.in_flight,
                1000.0,
            ),
            ("SSE: CPU µs per chunk, streams/s", streamer, STREAM_REQUEST, 64, 16, 1e6 / EVENTS),
        ):
            servers = {
                name: stack.enter_context(started(python, __file__, "--serve", kind, behind.origin))
                for name, kind in (("uvicorn + forwarder", "bare"), ("whole stack", "stack"))
            }
            if shutil.which("nginx"):
                servers["nginx proxy_pass"] = stack.enter_context(nginx_before(behind.origin))

            def run(
                server: Running,
                body: bytes = body,
                calls: int = calls,
                in_flight: int = in_flight,
                unit: float = unit,
            ) -> tuple[float, ...]:
                cpu, rate = measured(server, body, calls, in_flight)
                return cpu / calls * unit, rate

            compare(title, servers, given.rounds, run)


if __name__ == "__main__":
    main()
