"""Calls between servers: the same over a socket and inside a cell."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from nemo_gym.errors import CallTimeout, ConnectFailed, ConnectionLost
from nemo_gym.ids import parse_rollout_id, with_current_rollout_id
from nemo_gym.servers.serve import AppServer, bind_socket
from nemo_gym.telemetry import observer
from nemo_gym.telemetry.counts import RequestCounts
from nemo_gym.transport.base import RawHeaders
from nemo_gym.transport.directory import Directory
from nemo_gym.transport.server_client import (
    ServerClient,
    close_connections,
    propagate_with,
    request,
)
from support.wire_server import Connection, head_and_body, serve_wire

CONFIG = {"mcqa": {"resources_servers": {"mcqa": {"entrypoint": "app.py"}}}, "seed": 7}


async def describe(request: Request) -> Response:
    """Answer with what came."""
    seen = {
        "method": request.method,
        "path": request.url.path,
        "raw_path": request.scope["raw_path"].decode(),
        "query": request.url.query,
        "cookies": request.cookies,
        "header": request.headers.get("x-a"),
        "type": request.headers.get("content-type"),
        "length": request.headers.get("content-length"),
        "body": (await request.body()).decode(),
    }
    answer = JSONResponse(seen, 201, {"x-b": "2"})
    answer.set_cookie("ng_mcqa", "state")
    return answer


async def half(_request: Request) -> Response:
    async def pieces() -> AsyncGenerator[bytes]:
        yield b"half"
        raise RuntimeError("a bug")

    return StreamingResponse(pieces())


async def silent(_request: Request) -> Response:
    await asyncio.Event().wait()
    return Response()


def app() -> Starlette:
    methods = ["GET", "POST", "PUT", "DELETE"]
    routes = [Route("/half", half), Route("/silent", silent)]
    return Starlette(routes=[*routes, Route("/{rest:path}", describe, methods=methods)])


@pytest.fixture(params=["in a cell", "over http"])
async def client(request: pytest.FixtureRequest) -> AsyncGenerator[ServerClient]:
    directory = Directory()
    server = None
    if request.param == "in a cell":
        directory.register_local("mcqa", app())
    else:
        sock = bind_socket("127.0.0.1", 0)
        server = AppServer(app(), sock, "mcqa")
        await server.start()
        directory.set_addresses("mcqa", [f"http://127.0.0.1:{sock.getsockname()[1]}"])
    made = ServerClient(directory, CONFIG)
    yield made
    await made.aclose()
    if server is not None:
        await server.stop(0.1)


async def test_a_call_arrives_as_it_was_meant(client: ServerClient) -> None:
    answer = await client.post(
        server_name="mcqa",
        url_path="/ng-rollout/0-0/v1%2Fx",
        json={"a": "é"},
        cookies={"session": "1"},
        headers={"X-A": "yes"},
        params={"q": "1 2"},
    )

    assert (answer.status, answer.ok, answer.headers["X-B"]) == (201, True, "2")
    assert answer.cookies["ng_mcqa"].value == "state"
    assert await answer.json() == {
        "method": "POST",
        "path": "/ng-rollout/0-0/v1/x",
        "raw_path": "/ng-rollout/0-0/v1%2Fx",
        "query": "q=1+2",
        "cookies": {"session": "1"},
        "header": "yes",
        "type": "application/json",
        "length": "10",
        "body": '{"a":"é"}',
    }


async def test_every_method_is_there(client: ServerClient) -> None:
    for call in (client.get, client.post, client.put, client.delete):
        answer = await call("mcqa", "/x")
        assert (await answer.json())["method"].lower() == call.__name__


async def test_half_an_answer_is_an_error_that_names_the_server(client: ServerClient) -> None:
    with pytest.raises(ConnectionLost, match="mcqa: ") as lost:
        await client.get("mcqa", "/half")
    assert lost.value.response_started


async def test_a_silence_that_was_not_to_be_borne_is_an_error(client: ServerClient) -> None:
    with pytest.raises(CallTimeout, match="mcqa: "):
        await client.get("mcqa", "/silent", timeout=0.05)


async def test_the_load_is_counted_and_given_back(client: ServerClient) -> None:
    instance = client.directory.instances("mcqa")[0]
    calling = asyncio.create_task(client.get("mcqa", "/silent"))
    await asyncio.sleep(0.02)
    during = instance.in_flight
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)

    assert (during, instance.in_flight) == (1, 0)


async def test_a_hook_adds_its_headers_to_every_call(client: ServerClient) -> None:
    def inject(headers: RawHeaders) -> None:
        headers.append((b"x-a", b"trace"))

    propagate_with(inject)
    try:
        answer = await client.get("mcqa", "/x")
    finally:
        propagate_with(None)

    assert (await answer.json())["header"] == "trace"


async def test_a_rollout_goes_to_one_of_several_servers() -> None:
    async def name(connection: Connection) -> None:
        while await connection.request():
            await connection.say(head_and_body(b"%d" % id(connection.reader)))

    async with serve_wire(name) as first, serve_wire(name) as second:
        directory = Directory()
        directory.set_addresses("mcqa", [first.origin, second.origin])
        client = ServerClient(directory, CONFIG)
        for task in range(12):
            with with_current_rollout_id(parse_rollout_id(f"{task}-0")):
                places = {(await client.get("mcqa", "/")).url for _ in range(3)}
            prefixed = await client.get("mcqa", f"/ng-rollout/{task}-0/x")
            assert len(places) == 1
            assert prefixed.url.startswith(places.pop())
        await client.aclose()

        assert len(first.connections) == len(second.connections) == 1


async def test_a_server_that_is_not_up_yet_is_tried_again() -> None:
    async with serve_wire(Connection.client_leaves) as server:
        pass

    async def start_late() -> asyncio.Server:
        await asyncio.sleep(0.2)

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await Connection(1, reader, writer).request()
            writer.write(head_and_body(b"up"))
            writer.close()

        return await asyncio.start_server(accept, "127.0.0.1", server.port)

    late = asyncio.create_task(start_late())
    answer = await request("GET", f"{server.origin}/health")
    (await late).close()
    await close_connections()

    assert await answer.text() == "up"


async def test_a_post_that_may_have_arrived_is_never_repeated() -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()

    async with serve_wire(handler) as server:
        with pytest.raises(ConnectionLost):
            await request("POST", f"{server.origin}/run", json={})
        await close_connections()

        assert len(server.connections) == 1


async def test_a_server_that_stays_away_is_an_error_in_seconds() -> None:
    async with serve_wire(Connection.client_leaves) as server:
        pass

    with pytest.raises(ConnectFailed, match=server.origin):
        await asyncio.wait_for(request("GET", server.origin), 10)


@pytest.mark.parametrize(
    ("url", "asked"),
    [("", "/"), ("/", "/"), ("/a/", "/a/"), ("/a?b=c", "/a?b=c"), ("/v1/v1", "/v1/v1")],
)
async def test_a_url_is_asked_for_as_it_is(url: str, asked: str) -> None:
    async def handler(connection: Connection) -> None:
        await connection.say(head_and_body((await connection.request()).split(b" ")[1]))

    async with serve_wire(handler) as server:
        answer = await request("GET", server.origin + url)
        await close_connections()

    assert await answer.text() == asked


async def test_calls_over_http_count_as_outbound_until_their_head_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = RequestCounts()
    monkeypatch.setattr(observer, "request_counts", lambda: counts)
    asked, answer = asyncio.Event(), asyncio.Event()

    async def handler(connection: Connection) -> None:
        await connection.request()
        asked.set()
        await answer.wait()
        await connection.say(head_and_body())

    async with serve_wire(handler) as server:
        calling = asyncio.create_task(request("GET", server.origin))
        await asked.wait()
        during = counts.outbound_in_flight
        answer.set()
        await calling
        await close_connections()

    assert (during, counts.outbound_in_flight) == (1, 0)


def test_the_configuration_is_there_to_read() -> None:
    client = ServerClient(Directory(), CONFIG)

    assert client.global_config_dict["seed"] == client.global_config_dict.seed == 7
