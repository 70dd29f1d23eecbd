"""What a model server answers under a rollout prefix besides model calls; how paths may look."""

import gzip
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import brotli
import pytest
import zstandard
from starlette.types import ASGIApp

from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import RolloutId
from nemo_gym.responses_api_models.vllm_model.app import VLLMModel, VLLMModelConfig
from nemo_gym.runtime.capture_server import CaptureServer, provider_at
from nemo_gym.servers.forward import Forwarder
from nemo_gym.servers.serve import AppServer, bind_socket
from nemo_gym.transport.base import Call
from nemo_gym.transport.directory import Directory
from nemo_gym.transport.http import HttpTransport
from nemo_gym.transport.server_client import ServerClient
from support.capture_served import capture_served
from support.provider import Provider, serve_provider

BODY = json.dumps({"model": "m", "input": "q", "messages": []}).encode()
SIDE_ROUTES = [
    ("GET", "/v1/models"),
    ("GET", "/v1/models?limit=1000"),
    ("POST", "/v1/messages/count_tokens?beta=true"),
    ("GET", "/v1/responses/resp_1"),
    ("POST", "/v1/responses/compact"),
    ("GET", "/health"),
]


@pytest.fixture
async def provider() -> AsyncGenerator[Provider]:
    async with serve_provider() as served:
        yield served


@pytest.fixture(params=["model server", "capture server"])
async def origin(
    request: pytest.FixtureRequest, provider: Provider, tmp_path: Path
) -> AsyncGenerator[str]:
    """A server with capture on: in a run, or alone as `gym capture serve` has it."""
    store = CaptureStore(tmp_path)
    app: ASGIApp
    if request.param == "model server":
        settings = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path)}
        config = VLLMModelConfig(name="policy_model", base_url=provider.base_url, model="m")
        client = ServerClient(Directory(), settings)
        app = VLLMModel(config=config, server_client=client).setup_webserver()
    else:
        forwarder = Forwarder(provider_at(provider.base_url, None))
        app = CaptureServer(forwarder, store, RolloutId("process"))
    sock = bind_socket("127.0.0.1", 0)
    server = AppServer(app, sock, "policy_model")
    await server.start()
    yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    await server.stop(0.05)
    store.close()


async def _ask(
    origin: str, method: str, target: str, body: bytes = b"", encoding: bytes | None = None
) -> tuple[int, bytes]:
    headers = [(b"content-type", b"application/json")]
    if encoding is not None:
        headers.append((b"content-encoding", encoding))
    transport = HttpTransport(origin)
    try:
        reply = await transport.send(Call(method, target, headers, body))
        return reply.status, await reply.read()
    finally:
        await transport.aclose()


@pytest.mark.parametrize(("method", "route"), SIDE_ROUTES)
async def test_side_routes_are_answered_under_the_prefix_and_are_no_model_calls(
    origin: str, tmp_path: Path, method: str, route: str
) -> None:
    body = BODY if method == "POST" else b""
    status, answer = await _ask(origin, method, f"/ng-rollout/0-0{route}", body)

    assert status == 200, answer
    assert (status, answer) == await _ask(origin, method, route, body)
    assert CaptureStore(tmp_path).rollouts() == []


@pytest.mark.parametrize("route", ["/v1/responses", "/v1/chat/completions", "/v1/messages"])
async def test_a_query_and_a_base_url_that_ends_in_a_slash_are_the_same_route(
    origin: str, provider: Provider, tmp_path: Path, route: str
) -> None:
    for base in ("/ng-rollout/0-0", "/ng-rollout/0-0/", "//ng-rollout/0-0"):
        status, _ = await _ask(origin, "POST", f"{base}{route}?beta=true", BODY)

        assert status == 200
        assert provider.requests[-1].target == f"{route}?beta=true"
    assert len(CaptureStore(tmp_path).read("0-0")) == 3


@pytest.mark.parametrize("route", ["/v1/responses", "/v1/chat/completions", "/v1/messages"])
async def test_a_path_with_one_v1_too_many_or_too_few_is_explained(
    origin: str, provider: Provider, tmp_path: Path, route: str
) -> None:
    twice, twice_said = await _ask(origin, "POST", f"/ng-rollout/0-0/v1{route}", BODY)
    never, never_said = await _ask(
        origin, "POST", f"/ng-rollout/0-0{route.removeprefix('/v1')}", BODY
    )

    assert (twice, never) == (404, 404)
    assert b"take /v1 off the end of the client's base URL" in twice_said
    assert b"put /v1 at the end of the client's base URL" in never_said
    assert provider.counts.requests == 0
    assert CaptureStore(tmp_path).rollouts() == []


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_a_compressed_request_reaches_the_provider_and_is_stored_plain(
    origin: str, provider: Provider, tmp_path: Path, encoding: str
) -> None:
    pack = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}[encoding]
    target = "/ng-rollout/0-0/v1/responses"
    status, _ = await _ask(origin, "POST", target, pack(BODY), encoding.encode())

    assert status == 200
    (row,) = CaptureStore(tmp_path).read("0-0")
    assert isinstance(row, dict)
    assert row["request"] == json.loads(BODY)
    assert "notes" not in row
    got = provider.requests[-1]
    body = got.body if "content-encoding" not in got.headers else _unpacked(got.body, encoding)
    assert json.loads(body) == json.loads(BODY)


@pytest.mark.parametrize(
    ("lines", "packed"),
    [
        ([b"gzip", b"br"], brotli.compress(gzip.compress(BODY))),
        ([b"gzip", b"identity"], gzip.compress(BODY)),
        ([b""], BODY),
        ([b" , "], BODY),
        ([b"", b"gzip,"], gzip.compress(BODY)),
    ],
    ids=["two", "one of none", "empty", "empty list", "empty first"],
)
async def test_all_lines_that_name_an_encoding_are_read_and_empty_ones_name_none(
    origin: str, provider: Provider, tmp_path: Path, lines: list[bytes], packed: bytes
) -> None:
    transport = HttpTransport(origin)
    headers = [(b"content-encoding", line) for line in lines]
    target = "/ng-rollout/0-0/v1/responses"
    reply = await transport.send(Call("POST", target, headers, packed))
    await reply.read()
    await transport.aclose()

    assert reply.status == 200
    (row,) = CaptureStore(tmp_path).read("0-0")
    assert isinstance(row, dict)
    assert row["request"] == json.loads(BODY)
    got = provider.requests[-1]
    is_plain = packed == BODY or "content-encoding" not in got.headers
    assert (json.loads(got.body) == json.loads(BODY)) if is_plain else (got.body == packed)


def _unpacked(body: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.decompress(body)
    return zstandard.ZstdDecompressor().decompressobj().decompress(body)


async def test_a_compressed_request_that_is_none_costs_no_call_by_capture(
    provider: Provider, tmp_path: Path
) -> None:
    """A server that changes nothing of a body passes it on; only capture cannot read it."""
    async with capture_served(provider.base_url, tmp_path) as port:
        origin = f"http://127.0.0.1:{port}"
        status, _ = await _ask(origin, "POST", "/v1/responses", b"not zstd", b"zstd")

    (row,) = CaptureStore(tmp_path).read("process")
    assert isinstance(row, dict)
    assert status == 200
    assert provider.requests[-1].body == b"not zstd"
    assert row["request"] is None
    assert row["notes"] == {"undecodable_body": ["request"]}
