"""Clients that hang up with the last byte they need, and a collector that reads at once."""

import asyncio
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from starlette.types import Receive, Scope, Send

from nemo_gym.capture.middleware import model_call_stack
from nemo_gym.capture.store import CaptureStore
from nemo_gym.observability.model_calls import (
    await_model_call_capture_quiescence,
    merge_model_call_capture_into_record,
)
from nemo_gym.servers.guard import DisconnectGuard
from support.asgi import body, start
from support.served import read_until, served

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
CHUNK = {**COMPLETION, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}}]}
CHAT_EVENTS = [f"data: {json.dumps(CHUNK)}\n\n".encode(), b"data: [DONE]\n\n"]
MESSAGE: dict[str, Any] = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
MESSAGE_EVENTS = [
    b"event: message_start\ndata: "
    + json.dumps({"type": "message_start", "message": MESSAGE}).encode()
    + b"\n\n",
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
]


async def provider(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers in JSON or as a stream, and is slow to say that it is done."""
    request = b""
    while (message := await receive())["more_body"] or message["body"]:
        request += message["body"]
        if not message["more_body"]:
            break
    chat = scope["path"] == CHAT
    if b'"stream": true' in request or b'"stream":true' in request:
        await send(start(200, (b"content-type", b"text/event-stream")))
        for event in CHAT_EVENTS if chat else MESSAGE_EVENTS:
            await send(body(event, more=True))
    else:
        data = json.dumps(COMPLETION if chat else MESSAGE).encode()
        length = (b"content-length", str(len(data)).encode())
        await send(start(200, (b"content-type", b"application/json"), length))
        await send(body(data, more=True))
    await asyncio.sleep(0.002)
    await send(body())


@pytest.fixture
def served_store(tmp_path: Path) -> Generator[tuple[int, CaptureStore]]:
    store = CaptureStore(tmp_path)
    app = DisconnectGuard(model_call_stack(provider, store=store, model_ref_name="m"))
    with served(app) as port:
        yield port, store
    store.close()


def url(port: int, rollout: str, path: str) -> str:
    return f"http://127.0.0.1:{port}/ng-rollout/{rollout}{path}"


def raw_json(port: int, rollout: str) -> None:
    read_until(port, f"/ng-rollout/{rollout}{CHAT}", "POST", lambda _, data: data.endswith(b"2}}"))


def raw_stream(port: int, rollout: str) -> None:
    read_until(
        port,
        f"/ng-rollout/{rollout}{MESSAGES}",
        "POST",
        lambda _, data: b"event: message_stop\n" in data,
        b'{"stream":true}',
    )


def with_urllib(port: int, rollout: str) -> None:
    request = urllib.request.Request(url(port, rollout, CHAT), data=b"{}")  # noqa: S310
    with urllib.request.urlopen(request, timeout=20) as response:  # noqa: S310
        assert json.load(response)["id"] == "c"


def with_curl(port: int, rollout: str) -> None:
    command = ["curl", "-sS", "-d", "{}", url(port, rollout, CHAT)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=20)
    assert json.loads(done.stdout)["id"] == "c"


def with_openai(port: int, rollout: str) -> None:
    base = url(port, rollout, "/v1")
    with openai.OpenAI(base_url=base, api_key="x", max_retries=0) as client:
        messages: Any = [{"role": "user", "content": "hi"}]
        with client.chat.completions.create(model="m", messages=messages, stream=True) as stream:
            assert len(list(stream)) == 1


def with_anthropic(port: int, rollout: str) -> None:
    base = url(port, rollout, "")
    with anthropic.Anthropic(base_url=base, api_key="x", max_retries=0) as client:
        messages: Any = [{"role": "user", "content": "hi"}]
        client.messages.create(model="m", max_tokens=5, messages=messages)


CLIENTS: list[tuple[Callable[[int, str], None], int]] = [
    (raw_json, 70),
    (raw_stream, 60),
    (with_urllib, 30),
    (with_curl, 20),
    (with_openai, 10),
    (with_anthropic, 10),
]


def test_200_calls_by_clients_that_hang_up_at_once_are_200_rows(
    served_store: tuple[int, CaptureStore],
) -> None:
    port, store = served_store
    calls = [call for call, times in CLIENTS for _ in range(times)]
    if shutil.which("curl") is None:
        calls = [raw_json if call is with_curl else call for call in calls]
    with ThreadPoolExecutor(8) as pool:
        done = [pool.submit(call, port, f"{n % 7}-0") for n, call in enumerate(calls)]
        for future in done:
            future.result()
        rows = [row for rollout in store.rollouts() for row in store.read(rollout)]

    assert len(calls) == 200
    assert len(rows) == 200
    assert {row["error_category"] for row in rows if isinstance(row, dict)} == {None}


@pytest.mark.skipif(shutil.which("ab") is None, reason="ab is not here; scripts/ci-tools has it")
@pytest.mark.parametrize("request_body", [b"{}", b'{"stream":true}'], ids=["json", "stream"])
def test_a_load_generator_that_keeps_no_connection_loses_no_row(
    served_store: tuple[int, CaptureStore], tmp_path: Path, request_body: bytes
) -> None:
    port, store = served_store
    (tmp_path / "body.json").write_bytes(request_body)
    load = ["ab", "-q", "-n", "1000", "-c", "32", "-T", "application/json"]
    load += ["-p", str(tmp_path / "body.json"), url(port, "0-0", CHAT)]

    said = subprocess.run(load, capture_output=True, text=True, check=True, timeout=60).stdout

    rows = store.read("0-0")
    assert re.search(r"Complete requests: +1000\nFailed requests: +0\n", said), said
    assert "Non-2xx" not in said
    assert len(rows) == 1000
    assert {row["error_category"] for row in rows if isinstance(row, dict)} == {None}


@pytest.mark.slow
def test_a_collector_that_reads_at_once_2000_times_misses_no_call(
    served_store: tuple[int, CaptureStore], tmp_path: Path
) -> None:
    port, _ = served_store

    def run(number: int) -> dict[str, Any]:
        raw_json(port, f"{number}-0")
        raw_stream(port, f"{number}-0")
        quiet = await_model_call_capture_quiescence(f"{number}-0", [tmp_path])
        assert asyncio.run(quiet)
        record: dict[str, Any] = {"_ng_task_index": number, "_ng_rollout_index": 0}
        found = merge_model_call_capture_into_record(record, [tmp_path])["ng_model_call_capture"]
        assert isinstance(found, dict)
        return found

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(run, range(2000)))

    assert [f["metrics"]["num_calls"] for f in found] == [2] * 2000
    assert [f for f in found if "gaps" in f] == []
