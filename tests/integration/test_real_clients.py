"""Claude Code and Codex, real and offline, captured while they work."""

import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.base_responses_api_model import CaptureStore, read_model_call_records
from nemo_gym.ids import RolloutId
from support.eval_servers import env_start
from support.gym_command import gym
from support.provider import Behaviour, ReceivedRequest
from support.real_clients import (
    CLIENT_KEY,
    CLIENTS,
    CODEX,
    DONE,
    Client,
    OutsideWorld,
    capture_serve,
    outside_world,
    writes_a_file,
)

SERVER_KEY = "sk-the-servers-own-key-2718281828"
TEXT = "written by a tool"
ID = RolloutId("7-1")


def _needs(client: Client) -> pytest.MarkDecorator:
    reason = f"{client.name} cannot run here; scripts/ci-tools installs it"
    return pytest.mark.skipif(not client.runs_here(), reason=reason)


def _each(*clients: Client) -> pytest.MarkDecorator:
    cases = [pytest.param(client, id=client.name, marks=_needs(client)) for client in clients]
    return pytest.mark.parametrize("client", cases)


@pytest.fixture
def world(client: Client, tmp_path: Path) -> Generator[OutsideWorld]:
    with outside_world() as outside:
        outside.provider.decide = writes_a_file(client, tmp_path / "work" / "hello.txt", TEXT)
        yield outside


@contextmanager
def model_server(client: Client, world: OutsideWorld, folder: Path) -> Generator[str]:
    """Run `gym env start` with capture on; gives the origin of its model server."""
    settings = (
        *("--model-api-key", SERVER_KEY, "++observability_enabled=true"),
        f"++model_call_capture_dir={folder / 'captures'}",
    )
    provider = world.provider.origin
    with env_start(folder, provider, *settings, model_type=client.model_type) as port:
        head = f"http://127.0.0.1:{port.partition('=')[2]}/servers"
        with urllib.request.urlopen(head, timeout=10) as answer:
            servers = json.load(answer)["servers"]
        yield next(s["addresses"][0] for s in servers if s["name"] == "policy_model")


def rows_of(folder: Path, rollout: str) -> list[dict[str, Any]]:
    lines = (folder / "captures" / f"{rollout}.capture.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def written(folder: Path) -> str:
    """Return all that servers left behind: captures, hidden files, logs, registry."""
    files = [*(folder / "captures").rglob("*"), *(folder / "state").rglob("*")]
    files.append(folder / "serve.log")
    return "".join(f.read_bytes().decode("latin-1") for f in files if f.is_file())


def assert_task_done(folder: Path, world: OutsideWorld) -> None:
    assert (folder / "work" / "hello.txt").read_text() == TEXT
    assert world.contacted == []


@_each(*CLIENTS)
def test_a_client_that_uses_a_tool_leaves_a_row_a_call_under_its_own_session(
    client: Client, world: OutsideWorld, tmp_path: Path
) -> None:
    captures = tmp_path / "captures"
    with capture_serve(world.provider.base_url, captures, tmp_path / "serve.log") as origin:
        ran = client.run(origin, tmp_path, world)

    assert ran.code == 0, ran.out
    assert_task_done(tmp_path, world)
    assert ran.session is not None
    assert [f.name for f in captures.glob("*.jsonl")] == [f"{ran.session}.capture.jsonl"]
    rows = rows_of(tmp_path, ran.session)
    assert len(rows) == world.provider.counts.requests == 2
    assert [row["request"] for row in rows] == [r.json() for r in world.provider.requests]
    assert {row["client_session_id"] for row in rows} == {ran.session}
    assert {row["error_category"] for row in rows} == {None}


@_each(*CLIENTS)
def test_the_calls_of_a_client_read_as_one_conversation(
    client: Client, world: OutsideWorld, tmp_path: Path
) -> None:
    captures = tmp_path / "captures"
    with capture_serve(world.provider.base_url, captures, tmp_path / "serve.log") as origin:
        ran = client.run(origin, tmp_path, world)
    asked, ended = read_model_call_records(CaptureStore(captures), RolloutId(str(ran.session)))
    shown = gym("capture", "show", str(ran.session), "--dir", str(captures), cwd=tmp_path)

    call = client.tool(tmp_path / "work" / "hello.txt", TEXT)
    assert asked.tool_calls == [
        {"call_id": call.call_id, "name": call.name, "arguments": json.loads(call.arguments)}
    ]
    assert (asked.tokens_in, ended.tokens_in) == (100, 200) if client is CODEX else (100, 300)
    assert not ended.tool_calls
    assert shown.code == 0
    assert DONE in shown.out
    assert call.name in shown.out


@_each(*CLIENTS)
def test_a_client_works_under_a_rollout_prefix_of_a_model_server(
    client: Client, world: OutsideWorld, tmp_path: Path
) -> None:
    with model_server(client, world, tmp_path) as origin:
        ran = client.run(f"{origin}/ng-rollout/0-0", tmp_path, world)

    assert ran.code == 0, ran.out
    assert_task_done(tmp_path, world)
    rows = rows_of(tmp_path, "0-0")
    calls = [r for r in world.provider.requests if r.method == "POST"]
    assert len(rows) == len(calls) == 2
    assert {r.key for r in calls} == {SERVER_KEY}
    assert {r.json()["model"] for r in calls} == {"m"}
    assert {row["client_session_id"] for row in rows} == {ran.session}
    assert {row["dialect"] for row in rows} == {client.dialect}


@_each(*CLIENTS)
def test_no_key_is_in_anything_that_a_server_wrote(
    client: Client, world: OutsideWorld, tmp_path: Path
) -> None:
    with model_server(client, world, tmp_path) as origin:
        client.run(f"{origin}/ng-rollout/0-0", tmp_path, world)
    with capture_serve(
        world.provider.base_url, tmp_path / "captures", tmp_path / "serve.log"
    ) as origin:
        client.run(origin, tmp_path, world)
    left = written(tmp_path)

    assert TEXT in left
    assert CLIENT_KEY not in left
    assert SERVER_KEY not in left


@_each(*CLIENTS)
def test_each_try_of_a_client_is_a_row_of_its_own(
    client: Client, world: OutsideWorld, tmp_path: Path
) -> None:
    _first(world, Behaviour(status=500, body=b'{"error":{"message":"oops","type":"api_error"}}'))
    captures = tmp_path / "captures"
    with capture_serve(world.provider.base_url, captures, tmp_path / "serve.log") as origin:
        ran = client.run(f"{origin}/ng-rollout/{ID}", tmp_path, world)

    assert ran.code == 0, ran.out
    assert_task_done(tmp_path, world)
    rows = rows_of(tmp_path, ID)
    assert [row["status_code"] for row in rows] == [500, 200, 200]
    assert rows[0]["error_category"] == "upstream_error"
    assert rows[0]["request"] == rows[1]["request"]


@_each(*CLIENTS)
def test_a_stream_that_broke_and_the_try_after_it_are_two_rows(
    client: Client, world: OutsideWorld, tmp_path: Path
) -> None:
    decide = world.provider.decide
    assert decide is not None
    answer = decide(ReceivedRequest("POST", "/", {}, b"{}"))
    assert answer is not None
    _first(world, Behaviour(answer=answer.answer, reset="mid_body", cut_after=4))
    captures = tmp_path / "captures"
    with capture_serve(world.provider.base_url, captures, tmp_path / "serve.log") as origin:
        ran = client.run(f"{origin}/ng-rollout/{ID}", tmp_path, world)

    assert ran.code == 0, ran.out
    assert_task_done(tmp_path, world)
    broken, *rest = rows_of(tmp_path, ID)
    assert broken["error_category"] == "stream_truncated"
    assert broken["response_raw"].count("event: ") >= 3
    assert [row["error_category"] for row in rest] == [None, None]


def _wait_until(met: Callable[[], bool], timeout_s: float = 30) -> None:
    end = time.monotonic() + timeout_s
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)


def _first(world: OutsideWorld, behaviour: Behaviour) -> None:
    """Let the first call meet `behaviour`, the others what was decided before."""
    decide, met = world.provider.decide, []

    def first(request: ReceivedRequest) -> Behaviour | None:
        met.append(request)
        return behaviour if len(met) == 1 or decide is None else decide(request)

    world.provider.decide = first


@_each(*CLIENTS)
def test_a_client_killed_in_the_middle_of_a_stream_leaves_one_row_with_the_partial(
    client: Client, world: OutsideWorld, tmp_path: Path
) -> None:
    _first(world, Behaviour(hang="mid_body", cut_after=5))
    captures = tmp_path / "captures"
    with capture_serve(world.provider.base_url, captures, tmp_path / "serve.log") as origin:
        process = client.start(f"{origin}/ng-rollout/{ID}", tmp_path, world)
        _wait_until(lambda: world.provider.counts.requests == 1)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        _wait_until(lambda: world.provider.counts.cancelled == 1)
    (row,) = rows_of(tmp_path, ID)

    assert row["error_category"] == "cancelled"
    assert row["notes"]["phase"] in {"before_headers", "before_first_data", "mid_stream"}
    assert world.provider.counts.requests == 1


@_each(*CLIENTS)
def test_a_compressed_stream_is_read_by_the_client_and_by_the_capture(
    client: Client, world: OutsideWorld, tmp_path: Path
) -> None:
    decide = world.provider.decide
    assert decide is not None
    world.provider.decide = lambda r: replace(decide(r) or Behaviour(), encoding="zstd")
    captures = tmp_path / "captures"
    with capture_serve(world.provider.base_url, captures, tmp_path / "serve.log") as origin:
        ran = client.run(f"{origin}/ng-rollout/{ID}", tmp_path, world)

    assert ran.code == 0, ran.out
    assert_task_done(tmp_path, world)
    assert [
        len(r.tool_calls or ()) for r in read_model_call_records(CaptureStore(captures), ID)
    ] == [1, 0]
    assert DONE in json.dumps(rows_of(tmp_path, ID)[1]["response"])
