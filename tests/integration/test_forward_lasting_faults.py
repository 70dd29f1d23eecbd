"""Faults of the way to a provider that never pass by themselves: said once, with their mend."""

import json
import re
import shutil
import ssl
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.transport import dial
from nemo_gym.transport.base import Call
from nemo_gym.transport.http import HttpTransport
from support.model_server import serve_model
from support.provider import serve_provider
from support.wire_server import Connection, head_and_body, serve_wire

CALL = Call("POST", "/v1/responses", [], b"{}")


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for another name, signed by itself, with its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=other", "-keyout", "key.pem", "-out", "crt.pem"]
    command += ["-addext", "subjectAltName=DNS:other.test"]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    return tmp_path


@asynccontextmanager
async def serve_tls(certificate: Path) -> AsyncGenerator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "crt.pem", certificate / "key.pem")
    async with serve_provider(tls=context) as provider:
        yield provider.origin.replace("http:", "https:")


async def told(origin: str | list[str], **settings: Any) -> tuple[int, str]:
    """Ask a model server with the rule of every day, which would try for a minute."""
    async with serve_model(origin, **settings) as served:
        transport = HttpTransport(served.origin)
        reply = await transport.send(CALL)
        body = json.loads(await reply.read())
        await transport.aclose()
    return reply.status, body["error"]["message"] if "error" in body else ""


async def test_a_certificate_that_nobody_vouches_for_is_not_tried_again(certificate: Path) -> None:
    dial.default_tls.cache_clear()
    async with serve_tls(certificate) as origin:
        status, said = await told(origin)

    assert status == 502
    assert "its certificate is not trusted: self" in said
    assert said.endswith("name a file with its authority's certificate (PEM) in SSL_CERT_FILE")


async def test_a_certificate_for_another_name_is_not_tried_again(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "crt.pem"))
    dial.default_tls.cache_clear()
    async with serve_tls(certificate) as origin:
        status, said = await told(origin)
    dial.default_tls.cache_clear()

    assert status == 502
    assert said.endswith("; ask for the name that it was made for")


async def test_http_where_tls_was_asked_for_is_not_tried_again() -> None:
    async def plain(connection: Connection) -> None:
        await connection.reader.read(1)
        await connection.say(head_and_body(b"what?", "400 Bad Request"))

    async with serve_wire(plain) as server:
        status, said = await told(server.origin.replace("http:", "https:"))

    assert status == 502
    assert said.endswith("does it speak http:// there?")


async def test_a_handshake_that_breaks_off_has_a_reason() -> None:
    """It may have been a moment of weakness, so it is tried again."""

    async def hanging_up(connection: Connection) -> None:
        await connection.reader.read(1)
        connection.writer.transport.abort()

    async with serve_wire(hanging_up) as server:
        status, said = await told(server.origin.replace("http:", "https:"), max_tries=2)

    assert status == 502
    assert re.search("https://[^ ]+: [A-Za-z].* \\(2 tries", said)


@pytest.mark.parametrize("cut", [1, 7])
async def test_tls_where_http_was_asked_for_is_not_tried_again(cut: int) -> None:
    async def alerting(connection: Connection) -> None:
        await connection.request()
        alert = b"\x15\x03\x01\x00\x02\x02\x46"
        await connection.say(alert[:cut])
        await connection.say(alert[cut:])

    async with serve_wire(alerting) as server:
        status, said = await told(server.origin)

    assert status == 502
    assert said.endswith(f"{server.origin} speaks TLS: its URL must begin with https://")


async def test_replicas_stand_in_for_one_that_cannot_be_trusted(certificate: Path) -> None:
    dial.default_tls.cache_clear()

    async def answering(connection: Connection) -> None:
        while True:
            await connection.request()
            await connection.say(head_and_body(b"{}"))

    async with serve_tls(certificate) as bad, serve_wire(answering) as good:
        assert [(await told(urls))[0] for urls in ([bad, good.origin], [good.origin, bad])] == [
            200,
            200,
        ]
