"""A key planted in env.yaml is in no output, log, process list or HTTP answer."""

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.eval_command import environ_of
from support.eval_servers import provider_process
from support.gym_command import gym
from support.processes import family_of

KEY = 'sk-PLANTED-"08/15"&4711'
"""With characters that are escaped in JSON and in URLs."""
PATHS = ("/", "/config", "/servers", "/figures", "/metrics", "/health", "/openapi.json", "/docs")
ROUTES = (
    *("/v1/responses", "/v1/chat/completions", "/run", "/verify", "/seed_session", "/nowhere"),
    "/ng-rollout/spy-1/v1/responses",
)
EVALUATE = (
    *("eval", "run", "--agent", "mcqa_simple_agent", "--limit", "2"),
    *("--input", "resources_servers/mcqa/data/example.jsonl"),
)
COMPONENTS = ("--resources-server", "mcqa", "--model-type", "openai_model")


def _answers(url: str, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, data=body, headers={"content-type": "application/json"})  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - loopback
            return bytes(answer.read()) + str(answer.headers).encode()
    except urllib.error.HTTPError as error:
        return error.read() + str(error.headers).encode()


def _over_http(head: str) -> Iterator[bytes]:
    """Yield what every server of a run answers at its routes, right and wrong ones."""
    with urllib.request.urlopen(f"{head}/servers", timeout=10) as answer:  # noqa: S310 - loopback
        servers = json.load(answer)["servers"]
    origins = [head, *(address for server in servers for address in server["addresses"])]
    for origin in origins:
        yield from (_answers(origin + path) for path in PATHS)
        yield from (_answers(origin + route, b'{"input": "hi"}') for route in ROUTES)
        yield from (_answers(origin + route, b"{") for route in ROUTES)


def _of_the_system(pid: int) -> Iterator[bytes]:
    """Yield the process list, and command line and environment of every process of a run."""
    yield subprocess.run(["ps", "-eo", "args"], capture_output=True, check=True).stdout  # noqa: S607
    for member in family_of(pid):
        for name in ("cmdline", "environ"):
            yield Path(f"/proc/{member}/{name}").read_bytes()


@pytest.mark.parametrize("placement", [(), ("--one-process-each",)], ids=["a-cell", "processes"])
@pytest.mark.parametrize("behaviour", [{}, {"status": 401, "echo_key": True}], ids=["ok", "401"])
def test_a_planted_key_is_found_nowhere(
    tmp_path: Path, placement: tuple[str, ...], behaviour: dict[str, object]
) -> None:
    capture = ("++observability_enabled=true", f"++model_call_capture_dir={tmp_path}/captures")
    seen: list[bytes] = []
    with provider_process(**behaviour) as origin:
        (tmp_path / "env.yaml").write_text(
            f"policy_base_url: {origin}\npolicy_model_name: m\npolicy_api_key: '{KEY}'\n"
        )
        servers = subprocess.Popen(
            [
                *(sys.executable, "-m", "nemo_gym", "env", "start", *COMPONENTS, *capture),
                *(*placement, "++head_server.port=0", "telemetry.metrics.enabled=true"),
            ],
            cwd=tmp_path,
            env=environ_of(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert servers.stdout is not None
        told = [next(line for line in servers.stdout if b"healthy" in line)]
        found = re.search(rb"head server (http://[^;]*)", told[0])
        assert found
        head = found[1].decode()
        port = f"++head_server.port={head.rpartition(':')[2]}"
        commands = [
            (*EVALUATE, "--no-serve", "--output", "a.jsonl", port),
            ("env", "status", "--json"),
            ("env", "resolve", *COMPONENTS, "--origins"),
            ("top", "--once"),
        ]
        for command in commands:
            ended = gym(*command, cwd=tmp_path, environ=environ_of(tmp_path))
            seen += [ended.out.encode(), ended.err.encode()]
        seen += _over_http(head)
        seen += _of_the_system(servers.pid)
        servers.send_signal(signal.SIGINT)
        seen += servers.communicate(timeout=20)

    seen += [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and p.name != "env.yaml"]
    assert len(seen) > 100
    assert [text for text in seen if b"PLANTED" in text] == []
