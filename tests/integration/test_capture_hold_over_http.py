"""Against a real HTTP server with a slow disk: a client has its response once its row is safe."""

import re
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from nemo_gym.capture.middleware import model_call_stack
from nemo_gym.capture.store import CaptureStore
from nemo_gym.servers.guard import DisconnectGuard
from support.asgi import Script, body, start
from support.disks import FaultyDisk
from support.served import read_until, served

SSE = (b"content-type", b"text/event-stream")
DELAY_S = 0.05


class TimedDisk(FaultyDisk):
    """Knows when the last sync ended."""

    synced_at = 0.0

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.synced_at = time.monotonic()


class Slow:
    """A store whose syncs take long, and a way to serve a script through it."""

    def __init__(self, directory: Path) -> None:
        self.disk = TimedDisk()
        self.store = CaptureStore(directory, disk=self.disk)
        self.store.open_for_writing()
        self.disk.sync_delay_s = DELAY_S
        self.calls = 0

    def finish(
        self, path: str, script: Sequence[Message], enough: Callable[[bytes, bytes], bool], how: str
    ) -> tuple[bytes, float, float]:
        """Call once; return the bytes, when the client had enough, when the row was safe."""
        stack = model_call_stack(Script(script), store=self.store, model_ref_name="m")
        self.calls += 1
        with served(DisconnectGuard(stack)) as port:
            _, data = read_until(port, f"/ng-rollout/{self.calls}-0{path}", how, enough)
            finished_at, safe_at = time.monotonic(), self.disk.synced_at
            rows = self.store.read(f"{self.calls}-0")
        assert len(rows) == 1
        return data, finished_at, safe_at


@pytest.fixture
def slow(tmp_path: Path) -> Generator[Slow]:
    made = Slow(tmp_path)
    yield made
    made.store.close()


def by_length(head: bytes, data: bytes) -> bool:
    """Whether the declared length has arrived."""
    found = re.search(rb"content-length: (\d+)", head)
    assert found is not None
    return len(data) >= int(found[1])


def by_line(line: bytes) -> Callable[[bytes, bytes], bool]:
    """Whether a line, but not yet its event, has arrived."""
    return lambda _, data: line in data


def by_head(head: bytes, data: bytes) -> bool:
    return True


def by_end(head: bytes, data: bytes) -> bool:
    return by_length(head, data) if b"content-length" in head else data.endswith(b"0\r\n\r\n")


JSON_BODY = b'{"id": "x", "choices": []}'
LENGTH = (b"content-length", str(len(JSON_BODY)).encode())
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
CASES: dict[str, tuple[str, str, list[Message], Callable[[bytes, bytes], bool]]] = {
    "content-length-reached-and-an-empty-message-after": (
        CHAT,
        "POST",
        [
            start(200, LENGTH),
            body(JSON_BODY[:9], more=True),
            body(JSON_BODY[9:], more=True),
            body(),
        ],
        by_length,
    ),
    "chunked-json": (CHAT, "POST", [start(200), body(JSON_BODY)], by_end),
    "sse-terminal-event-and-an-empty-message-after": (
        RESPONSES,
        "POST",
        [
            start(200, SSE),
            body(b'data: {"type":"response.created","response":{"id":"r"}}\n\n', more=True),
            body(
                b'event: response.completed\ndata: {"type":"response.completed","response":'
                b'{"id":"r","status":"completed"}}\n\n',
                more=True,
            ),
            body(),
        ],
        by_line(b"event: response.completed\n"),
    ),
    "message-stop-without-its-data": (
        MESSAGES,
        "POST",
        [start(200, SSE), body(b"event: message_stop\n", more=True), body(b"data: {}\n\n")],
        by_line(b"event: message_stop\n"),
    ),
    "done-without-its-blank-line": (
        CHAT,
        "POST",
        [start(200, SSE), body(b"data: [DONE]\n", more=True), body(b"\n", more=True), body()],
        by_line(b"data: [DONE]\n"),
    ),
    "empty-502": (CHAT, "POST", [start(502, (b"content-length", b"0")), body()], by_head),
    "chunked-empty-502": (CHAT, "POST", [start(502), body()], by_end),
    "204": (CHAT, "POST", [start(204), body()], by_head),
    "head": (CHAT, "HEAD", [start(200, LENGTH), body()], by_head),
}


@pytest.mark.parametrize("case", CASES)
def test_no_client_has_its_whole_response_before_its_row_is_safe(slow: Slow, case: str) -> None:
    path, method, script, enough = CASES[case]
    for _ in range(2):
        began = time.monotonic()
        _, finished_at, safe_at = slow.finish(path, script, enough, method)

        assert began < safe_at <= finished_at


def test_what_comes_before_the_end_is_not_held(slow: Slow) -> None:
    arrivals: dict[str, float] = {}

    def enough(head: bytes, data: bytes) -> bool:
        arrivals.setdefault("first", time.monotonic()) if b"hello" in data else None
        return b"data: [DONE]\n" in data

    pieces: list[Any] = [
        start(200, SSE),
        body(b'data: {"choices":[{"index":0,"delta":{"content":"hello"}}]}\n\n', more=True),
        body(b"data: [DONE]\n\n"),
    ]
    _, finished_at, safe_at = slow.finish(CHAT, pieces, enough, "POST")

    assert arrivals["first"] <= safe_at - DELAY_S / 2
    assert safe_at <= finished_at
