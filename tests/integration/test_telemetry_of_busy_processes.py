"""What a process shows of itself while it is held, is stopped, or has much to show."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.eval_command import environ_of
from support.processes import children_of

GYM = str(Path(sys.executable).parent / "gym")
MODELS = 60
APP = """
import asyncio, os, time
from pathlib import Path
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig, BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer,
)
from nemo_gym.telemetry.model_calls import count_tokens, model_call_started

class Probe(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    def setup_webserver(self):
        app = super().setup_webserver()
        app.post("/hold")(self.hold)
        app.post("/call")(self.call)
        app.get("/pid")(self.pid)
        return app

    async def hold(self):
        while not Path("released").exists():
            time.sleep(0.01)
        return {}

    async def call(self):
        for number in range(MODELS):
            with model_call_started("openai", f"model-{number}", stream=True) as call:
                call.first_chunk()
            count_tokens("openai", f"model-{number}", tokens_in=1, tokens_out=2, cache_read=1)
        return {}

    async def pid(self):
        return {"pid": os.getpid()}

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)
""".replace("MODELS", str(MODELS))


class Environment:
    """Servers that were started with `gym env start`, metrics on."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.folder = folder
        self.process = process
        [entry] = (folder / "state" / "nemo_gym" / "runs").glob("*.json")
        self.head = json.loads(entry.read_text())["head_url"]
        [probe] = [s for s in self.read("/servers")["servers"] if s["name"] == "probe"]
        self.address = probe["addresses"][0]

    def read(self, path: str) -> Any:
        return json.loads(self.text(path))

    def text(self, path: str) -> str:
        with urlopen(self.head + path, timeout=20) as answer:  # noqa: S310 - our own server
            return str(answer.read().decode())

    def begin(self, method: str, path: str) -> socket.socket:
        """Send a request to the probe, and do not wait for its answer."""
        host, port = self.address.removeprefix("http://").split(":")
        sock = socket.create_connection((host, int(port)), 10)
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0"
        sock.sendall(f"{head}\r\n\r\n".encode())
        return sock

    def ask(self, method: str, path: str) -> str:
        with self.begin(method, path) as sock:
            return b"".join(iter(lambda: sock.recv(4096), b"")).decode()

    def run(self, *arguments: str) -> str:
        """Return what a command prints."""
        return subprocess.run(
            [GYM, *arguments],
            cwd=self.folder,
            env=environ_of(self.folder),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout

    def figures(self) -> dict[str, Any]:
        """Return the figures of the process that the probe is in."""
        found = [p for p in self.read("/figures")["processes"] if p["process"] != "parent"]
        return next(iter(found), {})


@pytest.fixture
def environment(tmp_path: Path) -> Generator[Environment]:
    folder = tmp_path / "resources_servers" / "probe"
    (folder / "configs").mkdir(parents=True)
    (folder / "app.py").write_text(APP)
    (folder / "configs" / "probe.yaml").write_text(
        "probe:\n  resources_servers:\n    probe: {entrypoint: app.py}\n"
    )
    command = [GYM, "env", "start", "--resources-server", "probe", "++head_server.port=0"]
    with (tmp_path / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [*command, "telemetry.metrics.enabled=true"],
            cwd=tmp_path,
            env=environ_of(tmp_path),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    assert process.stdout is not None
    try:
        assert any("healthy" in line for line in process.stdout)
        yield Environment(tmp_path, process)
    finally:
        for pid in children_of(process.pid):
            os.kill(pid, signal.SIGCONT)
        process.terminate()
        process.communicate(timeout=20)


def test_many_models_are_all_scraped_and_hold_nobody_up(environment: Environment) -> None:
    assert " 200 " in environment.ask("POST", "/call")

    texts = [environment.text("/metrics") for _ in range(4)]

    for text in texts:
        assert len(text) > 2 * 65536  # more than fits into a pipe, or into a line by default
        found = {
            sample.labels.get("gen_ai_request_model")
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        assert {f"model-{number}" for number in range(MODELS)} <= found
    assert " 200 " in environment.ask("GET", "/pid")


def test_a_process_whose_loop_is_held_is_seen_all_the_same(environment: Environment) -> None:
    with environment.begin("POST", "/hold") as held:
        wait_until(lambda: environment.figures().get("servers", [{}])[0].get("in_flight") == 1)

        assert 'process="cell-0"' in environment.text("/metrics")
        assert environment.read("/figures")["silent"] == []
        (environment.folder / "released").touch()
        assert b" 200 " in held.recv(4096)


def test_a_process_that_says_nothing_is_named_and_later_heard_again(
    environment: Environment,
) -> None:
    [cell] = children_of(environment.process.pid)
    before = environment.figures()
    os.kill(cell, signal.SIGSTOP)

    silent = environment.read("/figures")["silent"]
    assert 'process="cell-0"' not in environment.text("/metrics")
    top = environment.run("top", "--once")
    top_json = environment.run("top", "--once", "--json")
    os.kill(cell, signal.SIGCONT)
    stopped_at = time.time()

    assert silent == [before["process"]] == json.loads(top_json)["silent"]
    assert f"{before['process']} did not answer" in top
    wait_until(lambda: environment.read("/figures")["silent"] == [])
    assert environment.figures()["taken_at"] >= stopped_at
    assert 'process="cell-0"' in environment.text("/metrics")


def wait_until(happened: Any, patience_s: float = 20) -> None:
    deadline = time.monotonic() + patience_s
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)  # another process's figures are told only when they are asked for
