"""Opening connections: the addresses of a host in turn, TLS, the way through a proxy."""

import asyncio
import functools
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from nemo_gym.errors import ConnectFailed
from nemo_gym.transport.address import Address
from nemo_gym.transport.connection import Connection

__all__ = ["Dialler", "default_tls"]

# A host with several addresses: an unreachable one must not use up the whole time.
_EACH_ADDRESS_S = 2.0
_KEEP_ALIVE_PROBES = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))

# What OpenSSL says of bytes that are no TLS, by its versions.
_NO_TLS = frozenset(("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"))
_NAME_AUTHORITY = (
    "if it should be, name a file with its authority's certificate (PEM) in SSL_CERT_FILE"
)
_ITS_TIME = "have it renewed, or set the clock of this machine right"
_ITS_NAME = "ask for the name that it was made for"
# By OpenSSL's codes: not yet valid, expired; for another name, for another address.
_MENDS = {9: _ITS_TIME, 10: _ITS_TIME, 62: _ITS_NAME, 64: _ITS_NAME}


@functools.cache
def default_tls() -> ssl.SSLContext:
    """Return the TLS settings shared by all: the system's authorities, or `SSL_CERT_FILE`."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


@dataclass(frozen=True, slots=True)
class Dialler:
    """Opens connections to one address."""

    address: Address
    proxy: Address | None
    timeout_s: float
    tls: Callable[[], ssl.SSLContext] = default_tls

    async def __call__(self) -> Connection:
        """Return an open connection; raises `ConnectFailed`."""
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._connect()
        except TimeoutError:
            raise ConnectFailed(
                f"{self._named()}: no connection within {self.timeout_s:g} s"
            ) from None
        except OSError as problem:
            said = f"{self._named()}: {_reason(problem)}"
            raise ConnectFailed(said, lasting=_is_lasting(problem)) from problem

    async def _connect(self) -> Connection:
        connection = Connection(self.address.origin)
        secure = self.address.scheme == "https"
        if self.proxy is not None and secure:
            await self._tunnel(self.proxy, connection)
        elif self.proxy is not None:
            await _open(self.proxy, lambda: connection, self._tls_for(self.proxy))
        else:
            await _open(self.address, lambda: connection, self._tls_for(self.address))
        return connection

    async def _tunnel(self, proxy: Address, connection: Connection) -> None:
        """Ask `proxy` for the way through, then speak TLS with the server behind it."""
        loop = asyncio.get_running_loop()
        knock = _Knock(loop)
        transport = await _open(proxy, lambda: knock, self._tls_for(proxy))
        try:
            transport.write(self._knock_on(proxy))
            _admitted(proxy, await knock.answered)
            secured = await loop.start_tls(
                transport, connection, self.tls(), server_hostname=self.address.host
            )
        except BaseException:
            transport.abort()
            raise
        if secured is None:
            raise ConnectionAbortedError("the connection closed during the TLS handshake")
        connection.connection_made(secured)

    def _knock_on(self, proxy: Address) -> bytes:
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        place = f"{host}:{self.address.port}"
        request = f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n"
        if proxy.authorization is not None:
            request += f"Proxy-Authorization: {proxy.authorization}\r\n"
        return f"{request}\r\n".encode("ascii")

    def _tls_for(self, address: Address) -> ssl.SSLContext | None:
        return self.tls() if address.scheme == "https" else None

    def _named(self) -> str:
        return self.address.origin + (f" (proxy {self.proxy.origin})" if self.proxy else "")


class _Knock(asyncio.Protocol):
    """The proxy's answer to CONNECT. Nothing may follow it before we speak."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.answered: asyncio.Future[int | str] = loop.create_future()
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self.answered.done() or (b"\r\n\r\n" not in self._head and len(self._head) < 65536):
            return
        words = self._head.split(b"\r\n", 1)[0].split(b" ", 2)
        valid = words[0].startswith(b"HTTP/1.") and len(words) > 1 and words[1].isdigit()
        self.answered.set_result(int(words[1]) if valid else "something that is not HTTP")

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answered.done():
            self.answered.set_result("nothing and closed the connection")


def _admitted(proxy: Address, answer: int | str) -> None:
    if answer != 200:
        raise ConnectionRefusedError(f"the proxy {proxy.origin} answered {answer}")


async def _open(
    address: Address, protocol: Callable[[], asyncio.BaseProtocol], tls: ssl.SSLContext | None
) -> asyncio.Transport:
    """Connect to the first address of the host that takes us."""
    hosts = await _addresses(address)
    for number, host in enumerate(hosts, start=1):
        try:
            async with asyncio.timeout(_EACH_ADDRESS_S if number < len(hosts) else None):
                return await _open_one(address, host, protocol, tls)
        except OSError:  # TimeoutError is one
            if number == len(hosts):
                raise
    raise OSError("the name has no address")


async def _addresses(address: Address) -> list[str]:
    try:
        ipaddress.ip_address(address.host)
    except ValueError:
        infos = await asyncio.get_running_loop().getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM
        )
        return list(dict.fromkeys(str(info[4][0]) for info in infos))
    return [address.host]


async def _open_one(
    address: Address,
    host: str,
    protocol: Callable[[], asyncio.BaseProtocol],
    tls: ssl.SSLContext | None,
) -> asyncio.Transport:
    transport, _ = await asyncio.get_running_loop().create_connection(
        protocol, host, address.port, ssl=tls, server_hostname=address.host if tls else None
    )
    _probe_silence(transport)
    return transport


def _probe_silence(transport: asyncio.Transport) -> None:
    """Have the kernel notice a dead host, also where a call may be silent for an hour."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE_PROBES:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _reason(problem: OSError) -> str:
    """Say what went wrong in the system's words, without Python's decoration."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        what = f"its certificate is not trusted: {problem.verify_message.rstrip('.')}"
        return f"{what}; {_MENDS.get(problem.verify_code, _NAME_AUTHORITY)}"
    if isinstance(problem, ssl.SSLError):
        asked = "; does it speak http:// there?" if problem.reason in _NO_TLS else ""
        return f"TLS failed: {problem.reason or problem}{asked}"
    if isinstance(problem, socket.gaierror) or not problem.errno:
        return problem.strerror or str(problem) or "the connection broke off before it stood"
    return os.strerror(problem.errno)


def _is_lasting(problem: OSError) -> bool:
    """Say whether trying again is of no use: a name may be known later, a certificate not."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return True
    return isinstance(problem, ssl.SSLError) and problem.reason in _NO_TLS
