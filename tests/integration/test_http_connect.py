"""Reaching a server: TLS, proxies, several addresses, pools that are full, forked children."""

import asyncio
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from nemo_gym.errors import CallTimeout, ConnectFailed
from nemo_gym.transport import dial
from nemo_gym.transport.base import Call
from nemo_gym.transport.http import HttpTransport, Limits, Proxies
from nemo_gym.transport.stepping import stepped
from support.wire_server import Connection, head_and_body, serve_wire

GET = Call("GET", "/v1/models")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate and key for localhost, signed by itself."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-keyout", str(path), "-out", f"{path}.crt"]
    command += ["-addext", "subjectAltName=DNS:localhost,DNS:provider.test,IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.fixture
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")
    dial.default_tls.cache_clear()
    yield
    dial.default_tls.cache_clear()


async def answer(connection: Connection) -> None:
    while True:
        await connection.request()
        await connection.say(head_and_body(b"secure"))


PIECES = [b"%d" % (number % 10) * (number * 997 % 20_000 + 1) for number in range(200)]


async def stream(connection: Connection) -> None:
    """Say much, in pieces of many lengths, some of them and the end together."""
    await connection.request()
    await connection.say(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    wire = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in PIECES]
    for piece in [*wire[:-3], b"".join([*wire[-3:], b"0\r\n\r\n"])]:
        await connection.say(piece)


@asynccontextmanager
async def serve_tls(
    certificate: Path, serving: Callable[[Connection], Awaitable[None]] = answer
) -> AsyncGenerator[int]:
    """Serve over TLS; yields the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    ended: list[asyncio.Task[None]] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        ended.append(task)
        with suppress(asyncio.IncompleteReadError, OSError):
            await serving(Connection(0, reader, writer))
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async with await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]
    await asyncio.gather(*ended)


@pytest.mark.usefixtures("trusted")
async def test_https_trusts_what_ssl_cert_file_names(certificate: Path) -> None:
    async with serve_tls(certificate) as port:
        transport = HttpTransport(f"https://localhost:{port}", proxies=Proxies())
        bodies = [await (await transport.send(GET)).read() for _ in range(2)]
        await transport.aclose()

    assert bodies == [b"secure", b"secure"]


@pytest.mark.usefixtures("trusted")
async def test_a_stream_over_tls_is_stepped_like_any_other(certificate: Path) -> None:
    """Also while whoever reads is the slow one, so that the connection stops reading."""
    passed: list[bytes] = []

    async with serve_tls(certificate, stream) as port:
        transport = HttpTransport(f"https://localhost:{port}", proxies=Proxies())
        reply = await transport.send(GET)

        async def read() -> None:
            while piece := await reply.chunk():
                passed.append(piece)
                if len(passed) % 5 == 0:
                    await asyncio.sleep(0.001)

        await stepped(reply, read())
        await transport.aclose()

    assert b"".join(passed) == b"".join(PIECES)


async def test_a_certificate_that_nobody_vouches_for_is_refused(certificate: Path) -> None:
    dial.default_tls.cache_clear()
    async with serve_tls(certificate) as port:
        transport = HttpTransport(f"https://localhost:{port}", proxies=Proxies())

        with pytest.raises(ConnectFailed, match=r"certificate is not trusted.*SSL_CERT_FILE"):
            await transport.send(GET)


async def test_plain_http_where_tls_was_asked_for_is_said_clearly() -> None:
    async def plain(connection: Connection) -> None:
        await connection.reader.read(1)
        await connection.say(head_and_body(b"what?", "400 Bad Request"))

    async with serve_wire(plain) as server:
        transport = HttpTransport(f"https://127.0.0.1:{server.port}", proxies=Proxies())
        with pytest.raises(ConnectFailed, match=rf"https://127\.0\.0\.1:{server.port}: TLS failed"):
            await transport.send(GET)


async def test_a_plain_call_goes_to_its_proxy_with_the_whole_url() -> None:
    seen: list[bytes] = []

    async def proxy(connection: Connection) -> None:
        seen.append(await connection.request())
        await connection.say(head_and_body(b"by proxy"))

    async with serve_wire(proxy) as server:
        url = f"http://user:p%40ss@127.0.0.1:{server.port}"
        transport = HttpTransport("http://provider.test:8000", proxies=Proxies({"http": url}))
        body = await (await transport.send(GET)).read()
        await transport.aclose()

    assert body == b"by proxy"
    lines = seen[0].split(b"\r\n")
    assert lines[0] == b"GET http://provider.test:8000/v1/models HTTP/1.1"
    assert b"host: provider.test:8000" in lines
    assert b"proxy-authorization: Basic dXNlcjpwQHNz" in lines


@pytest.mark.usefixtures("trusted")
async def test_a_secure_call_goes_through_its_proxy_unseen(certificate: Path) -> None:
    asked: list[bytes] = []

    async def proxy(connection: Connection) -> None:
        asked.append((await connection.request()).split(b"\r\n")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await connection.say(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(copy(connection.reader, writer), copy(reader, connection.writer))
        finally:
            writer.close()

    async with serve_tls(certificate) as port, serve_wire(proxy) as server:
        proxies = Proxies({"https": f"127.0.0.1:{server.port}"})
        transport = HttpTransport("https://provider.test", proxies=proxies)
        bodies = [await (await transport.send(GET)).read() for _ in range(2)]
        await transport.aclose()

    assert bodies == [b"secure", b"secure"]
    assert asked == [b"CONNECT provider.test:443 HTTP/1.1"]


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


@pytest.mark.parametrize(
    ("says", "shown"),
    [
        (head_and_body(b"no", "403 Forbidden"), "answered 403"),
        (b"", "answered nothing"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "answered something that is not HTTP"),
    ],
)
async def test_a_proxy_that_refuses_is_named(says: bytes, shown: str) -> None:
    async def proxy(connection: Connection) -> None:
        await connection.request()
        await connection.say(says)

    async with serve_wire(proxy) as server:
        proxies = Proxies({"https": f"http://u:secret@127.0.0.1:{server.port}"})
        transport = HttpTransport("https://provider.test", proxies=proxies)
        with pytest.raises(ConnectFailed, match=shown) as failed:
            await transport.send(GET)

    assert server.origin in str(failed.value)
    assert "secret" not in str(failed.value)


async def test_loopback_is_never_asked_for_through_a_proxy() -> None:
    async with serve_wire(answer) as server:
        proxies = Proxies({"http": "http://127.0.0.1:9", "all": "http://127.0.0.1:9"})
        transport = HttpTransport(server.origin, proxies=proxies)
        body = await (await transport.send(GET)).read()
        await transport.aclose()

    assert body == b"secure"


async def test_a_connection_that_never_stands_is_given_up() -> None:
    # A listener with a full backlog leaves further connections hanging.
    async def silent_proxy(connection: Connection) -> None:
        await connection.request()
        await asyncio.Event().wait()

    async with serve_wire(silent_proxy) as server:
        proxies = Proxies({"https": server.origin})
        limits = Limits(connect_s=0.05)
        transport = HttpTransport("https://provider.test", limits=limits, proxies=proxies)
        with pytest.raises(ConnectFailed, match=r"no connection within 0\.05 s"):
            await transport.send(GET)


async def test_a_name_without_an_address_is_said_to_have_none() -> None:
    transport = HttpTransport("http://nowhere.invalid", proxies=Proxies())

    with pytest.raises(ConnectFailed, match=r"http://nowhere\.invalid: "):
        await transport.send(GET)


async def test_a_full_pool_makes_calls_wait_their_turn() -> None:
    running = most = 0

    async def handler(connection: Connection) -> None:
        nonlocal running, most
        while await connection.request():
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            await connection.say(head_and_body())

    async with serve_wire(handler) as server:
        transport = HttpTransport(server.origin, limits=Limits(max_connections=3))
        replies = await asyncio.gather(*(transport.send(GET) for _ in range(20)))
        await transport.aclose()

    assert len(replies) == 20
    assert most == len(server.connections) == 3


async def test_a_waiting_call_that_is_cancelled_does_not_hold_up_the_next() -> None:
    free = asyncio.Event()

    async def handler(connection: Connection) -> None:
        while await connection.request():
            await free.wait()
            await connection.say(head_and_body())

    async with serve_wire(handler) as server:
        transport = HttpTransport(server.origin, limits=Limits(max_connections=1))
        first, second, third = (asyncio.create_task(transport.send(GET)) for _ in range(3))
        await asyncio.sleep(0.02)
        second.cancel()
        free.set()
        done = await asyncio.gather(first, second, third, return_exceptions=True)
        await transport.aclose()

    assert [type(result).__name__ for result in done] == [
        "HttpReply",
        "CancelledError",
        "HttpReply",
    ]


async def test_an_unused_connection_is_closed_when_it_is_old() -> None:
    closed = asyncio.Event()

    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.say(head_and_body())
        await connection.client_leaves()
        closed.set()

    async with serve_wire(handler) as server:
        transport = HttpTransport(server.origin, limits=Limits(keep_alive_s=0.05))
        await (await transport.send(GET)).read()
        await asyncio.wait_for(closed.wait(), 2)


async def test_a_full_pool_goes_on_after_calls_that_failed() -> None:
    async with serve_wire(Connection.client_leaves) as server:
        limits = Limits(max_connections=1, idle_s=0.02)
        transport = HttpTransport(server.origin, limits=limits)
        results = await asyncio.gather(
            *(transport.send(GET) for _ in range(4)), return_exceptions=True
        )

    assert [type(result) for result in results] == [CallTimeout] * 4


async def test_a_forked_child_leaves_the_connections_of_its_parent_alone() -> None:
    async with serve_wire(answer) as server:
        transport = HttpTransport(server.origin)
        await (await transport.send(GET)).read()

        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write_end, b"%d" % len(transport._pools))
            os._exit(0)
        os.waitpid(child, 0)  # noqa: ASYNC222 - the child answers at once

        assert os.read(read_end, 10) == b"0"
        assert await (await transport.send(GET)).read() == b"secure"
        assert len(server.connections) == 1
        await transport.aclose()
