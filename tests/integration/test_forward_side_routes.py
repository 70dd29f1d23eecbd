"""Everything under /v1 that is no model call: to the provider and back as it came, and no row."""

import asyncio
import gzip
import hashlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import RolloutId
from nemo_gym.responses_api_models.openai_model.app import OpenAIModel, OpenAIModelConfig
from nemo_gym.runtime.capture_server import CaptureServer, provider_at
from nemo_gym.servers.forward import Forwarder
from nemo_gym.servers.serve import AppServer, bind_socket
from nemo_gym.transport.base import Call, RawHeaders
from nemo_gym.transport.directory import Directory
from nemo_gym.transport.http import HttpTransport
from nemo_gym.transport.server_client import ServerClient
from support.model_server import serve_model
from support.wire_server import Connection, head_and_body, serve_wire

KEY = "sk-the-servers-own-key"
BINARY = bytes(range(256)) * 4000
UPLOAD = b'--x\r\ncontent-disposition: form-data; name="file"\r\n\r\n%b\r\n--x--\r\n' % BINARY
SIDE_ROUTES = [
    ("POST", "/v1/embeddings", b"application/json", b'{"model": "theirs",\n "input": 1.0}'),
    ("POST", "/v1/completions?a=1&b=%2F", b"application/json", b'{"model": "theirs"}'),
    ("POST", "/v1/files", b"multipart/form-data; boundary=x", UPLOAD),
    ("POST", "/v1/moderations", b"application/json", gzip.compress(b'{"input":"x"}', mtime=0)),
    ("POST", "/v1/images/edits", b"application/octet-stream", BINARY),
    ("POST", "/v1/threads/t_1/messages", b"application/json", b'{"role":"user"}'),
    ("GET", "/v1/files/file-1/content", b"", b""),
    ("GET", "/v1/files/a%2Fb?limit=2", b"", b""),
    ("DELETE", "/v1/vector_stores/vs_1", b"", b""),
    ("PUT", "/v1/x", b"text/plain", b"x"),
    ("PATCH", "/v1/x", b"text/plain", b""),
    ("OPTIONS", "/v1/embeddings", b"", b""),
    ("HEAD", "/v1/files/file-1", b"", b""),
]


async def echoing(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with bytes that no text has, and say in the head what was asked."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    headers = dict(scope["headers"])
    asked = [
        scope["method"],
        scope["raw_path"].decode().partition("?")[0],
        scope["query_string"].decode(),
        hashlib.sha256(body).hexdigest(),
        *(headers.get(name, b"").decode() for name in (b"content-type", b"authorization")),
        headers.get(b"anthropic-version", b"").decode(),
    ]
    said = (b"x-asked", json.dumps(asked).encode())
    start = {"type": "http.response.start", "status": 201, "headers": [said]}
    await send({**start, "headers": [said, (b"content-type", b"application/octet-stream")]})
    await send({"type": "http.response.body", "body": BINARY})


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncGenerator[str]:
    sock = bind_socket("127.0.0.1", 0)
    server = AppServer(app, sock, "policy_model")
    await server.start()
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        await server.stop(0.05)


@pytest.fixture(params=["model server", "capture server"])
async def origin(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[str]:
    """A server with capture on, in front of one that echoes."""
    store = CaptureStore(tmp_path)
    async with serving(echoing) as upstream:
        app: ASGIApp
        if request.param == "model server":
            settings = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path)}
            config = OpenAIModelConfig(
                name="policy_model",
                openai_base_url=f"{upstream}/v1",
                openai_api_key=KEY,
                openai_model="configured",
            )
            client = ServerClient(Directory(), settings)
            app = OpenAIModel(config=config, server_client=client).setup_webserver()
        else:
            forwarder = Forwarder(provider_at(f"{upstream}/v1", KEY))
            app = CaptureServer(forwarder, store, RolloutId("process"))
        async with serving(app) as served:
            yield served
    store.close()


async def ask(origin: str, call: Call) -> tuple[int, RawHeaders, bytes]:
    transport = HttpTransport(origin)
    try:
        reply = await transport.send(call)
        return reply.status, reply.headers, await reply.read()
    finally:
        await transport.aclose()


@pytest.mark.parametrize("prefix", ["", "/ng-rollout/0-0"])
@pytest.mark.parametrize(("method", "target", "kind", "body"), SIDE_ROUTES)
async def test_it_is_passed_on_as_it_came_and_leaves_no_row(
    origin: str, tmp_path: Path, prefix: str, *, method: str, target: str, kind: bytes, body: bytes
) -> None:
    headers = [(b"content-type", kind), (b"authorization", b"Bearer the-clients")]
    status, said, answer = await ask(origin, Call(method, prefix + target, headers, body))

    assert status == 201
    assert answer == (b"" if method == "HEAD" else BINARY)
    path, _, query = target.partition("?")
    digest = hashlib.sha256(body).hexdigest()
    asked = [method, path, query, digest, kind.decode(), f"Bearer {KEY}", ""]
    assert json.loads(dict(said)[b"x-asked"]) == asked
    assert CaptureStore(tmp_path).rollouts() == []


@pytest.mark.parametrize("model_type", ["openai_model", "anthropic_model"])
async def test_a_dialect_that_the_provider_does_not_speak_stays_refused(model_type: str) -> None:
    routes = ["/v1/messages", "/v1/messages/count_tokens"]
    if model_type == "anthropic_model":
        routes = ["/v1/responses", "/v1/responses/r_1/cancel", "/v1/chat/completions/c_1"]
    async with serving(echoing) as upstream, serve_model(upstream, model_type) as served:
        for route in routes:
            status, _, answer = await ask(served.origin, Call("POST", route, [], b"{}"))

            assert status == 400
            assert b"does not speak" in answer


async def test_a_stream_beside_the_model_routes_passes_piece_by_piece() -> None:
    half, go_on = b"data: one\n\n", asyncio.Event()

    async def in_two(connection: Connection) -> None:
        await connection.request()
        await connection.say(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\nb\r\n" + half + b"\r\n"
        )
        await go_on.wait()
        await connection.say(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    async with serve_wire(in_two) as upstream, serve_model(upstream.origin) as served:
        transport = HttpTransport(served.origin)
        reply = await transport.send(Call("POST", "/v1/completions", [], b"{}"))
        first = await reply.chunk()
        go_on.set()
        rest = await reply.read()
        await transport.aclose()

    assert (first, rest) == (half, b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("method", "path", "tries"),
    [
        ("POST", "/v1/files", 1),
        ("POST", "/v1/messages/batches", 1),
        ("POST", "/v1/fine_tuning/jobs", 1),
        ("POST", "/v1/embeddings", 2),
        ("POST", "/v1/messages/count_tokens", 2),
        ("DELETE", "/v1/files/f_1", 2),
        ("GET", "/v1/files", 2),
    ],
)
@pytest.mark.parametrize("fault", ["lost", 502, 503])
async def test_what_makes_something_at_the_provider_is_not_asked_for_twice(
    method: str, path: str, tries: int, *, fault: str | int
) -> None:
    asked: list[bytes] = []

    async def failing(connection: Connection) -> None:
        while True:
            asked.append(await connection.request())
            if fault == "lost":
                return
            await connection.say(head_and_body(b"{}", f"{fault} X"))

    async with serve_wire(failing) as upstream, serve_model(upstream.origin, max_tries=2) as served:
        body = b"{}" if method == "POST" else b""
        status, _, _ = await ask(served.origin, Call(method, path, [], body))

    assert status == (502 if fault == "lost" else fault)
    assert len(asked) == (2 if fault == 503 else tries)
