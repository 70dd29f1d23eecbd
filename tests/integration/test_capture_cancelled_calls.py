"""A client that leaves a real server: the provider's call ends too, one row says how far it was."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.capture.store import CaptureStore
from nemo_gym.errors import ConnectionLost
from nemo_gym.observability.model_calls import await_model_call_capture_quiescence
from nemo_gym.transport.base import Call
from nemo_gym.transport.http import HttpTransport
from support.capture_served import capture_served
from support.provider import Answer, Behaviour, Provider, serve_provider
from support.provider_bodies import events_of

ROUTES = {
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
}
ANSWER = Answer(text="A partial answer of many words")


def sent_until(phase: str, dialect: str) -> list[bytes]:
    """What a provider has sent of its body when a client of `phase` leaves."""
    pieces = events_of(dialect, ANSWER)
    return {
        "before_headers": [],
        "before_first_data": [b": processing\n\n"],
        "mid_stream": pieces[: len(pieces) // 2],
        "before_terminal": pieces[:-1],
    }[phase]


def falls_silent_after(sent: list[bytes]) -> Behaviour:
    body = b"".join(sent)
    if not body:
        return Behaviour(hang="before_head")
    kind = "text/event-stream"
    return Behaviour(
        body=body + b"data: ",
        content_type=kind,
        hang="mid_body",
        piece_size=len(body),
        cut_after=1,
    )


@pytest.fixture
async def provider() -> AsyncGenerator[Provider]:
    async with serve_provider() as served:
        yield served


@pytest.fixture
async def port(provider: Provider, tmp_path: Path) -> AsyncGenerator[int]:
    async with capture_served(provider.base_url, tmp_path) as port:
        yield port


async def _ask_and_leave(port: int, route: str, provider: Provider, last: bytes) -> None:
    """Ask for a stream and close once `last` has come; empty: once the provider was asked."""
    body = b'{"model":"m","stream":true}'
    head = f"POST /ng-rollout/0-0{route} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + body)
    await provider.until(lambda counts: counts.in_flight == 1)
    if last:
        await asyncio.wait_for(reader.readuntil(last), 10)
    writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, b"\1" + bytes(7)
    )
    writer.close()


@pytest.mark.parametrize("dialect", ROUTES)
@pytest.mark.parametrize(
    "phase", ["before_headers", "before_first_data", "mid_stream", "before_terminal"]
)
async def test_the_providers_call_is_cancelled_and_the_row_says_how_far_it_was(
    provider: Provider, port: int, tmp_path: Path, phase: str, dialect: str
) -> None:
    sent = sent_until(phase, dialect)
    provider.script(falls_silent_after(sent))

    await _ask_and_leave(port, ROUTES[dialect], provider, b"".join(sent)[-12:])
    await provider.until(lambda counts: counts.cancelled == 1)

    assert await await_model_call_capture_quiescence("0-0", [tmp_path])
    (row,) = CaptureStore(tmp_path).read("0-0")
    assert isinstance(row, dict)
    assert (row["error_category"], row["notes"]["phase"]) == ("cancelled", phase)
    assert row["request"] == {"model": "m", "stream": True}
    assert row.get("response_raw", "").encode() == b"".join(sent)
    assert (row["latency_ttft_ms"] is None) == (phase in {"before_headers", "before_first_data"})
    if phase == "before_terminal":
        assert _text(row) == ANSWER.text


async def test_a_body_that_breaks_off_after_some_of_it_passed_is_a_lost_connection(
    provider: Provider, port: int, tmp_path: Path
) -> None:
    """A body that comes so slowly that it is passed on before it is whole."""
    half = b'{"id":"resp_1","output":[' + b" " * 40
    slow = Behaviour(body=half, piece_size=24, piece_delay_s=1.1, close="mid_body", cut_after=2)
    provider.script(slow)
    transport = HttpTransport(f"http://127.0.0.1:{port}")
    reply = await transport.send(Call("POST", "/ng-rollout/0-0/v1/responses", [], b"{}"))
    with pytest.raises(ConnectionLost):
        await reply.read()
    await transport.aclose()

    assert await await_model_call_capture_quiescence("0-0", [tmp_path])
    (row,) = CaptureStore(tmp_path).read("0-0")
    assert isinstance(row, dict)
    assert (row["status_code"], row["error_category"]) == (200, "connection")
    assert row["response_raw"].encode() == half[:48]


def _text(row: dict[str, Any]) -> str:
    response: Any = row["response"] or {}
    if row["dialect"] == "chat":
        return "".join(c["message"]["content"] or "" for c in response.get("choices", ()))
    items = response.get("content", response.get("output", ()))
    parts = [p for i in items for p in (i.get("content", [i]) if isinstance(i, dict) else ())]
    return "".join(p.get("text", "") for p in parts)
