"""What a call to another server of the run returns, whether it went over HTTP or in-process."""

from collections.abc import Awaitable, Generator, Iterator, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from nemo_gym.errors import GymError
from nemo_gym.transport.base import RawHeaders
from nemo_gym.wire.json import JsonError, loads_strictly

__all__ = [
    "CallFailed",
    "Headers",
    "ServerResponse",
    "get_response_json",
    "raise_for_status",
]

_SHOWN_CHARACTERS = 500


class CallFailed(GymError):
    """A server of the run, or a provider behind it, answered with an error status."""

    def __init__(self, response: "ServerResponse") -> None:
        self.server_name = response.server_name
        """None for a call to a plain URL."""
        self.server_kind = response.server_kind
        """`resources_servers`, `responses_api_agents` or `responses_api_models`; None: unknown."""
        self.url_path = response.url_path
        self.status = response.status
        self.headers = response.headers
        self.body = response.body.decode("utf-8", "replace")
        """What the server answered, as text, whole."""
        super().__init__(
            f"{response.server_name or response.url}: {response.method} {response.url_path} "
            f"answered {response.status}: {self.body[:_SHOWN_CHARACTERS]}"
        )


class Headers(Mapping[str, str]):
    """Response headers by name, in any case; of several under one name the first."""

    def __init__(self, raw: RawHeaders) -> None:
        self._raw = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in raw]

    def __getitem__(self, name: str) -> str:
        wanted = name.lower()
        for known, value in self._raw:
            if known == wanted:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for name, _ in self._raw))

    def __len__(self) -> int:
        return len(dict.fromkeys(name for name, _ in self._raw))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and any(known == name.lower() for known, _ in self._raw)

    def getall(self, name: str) -> list[str]:
        """Return every value under `name`, in order."""
        return [value for known, value in self._raw if known == name.lower()]


class _Content:
    """The body as a stream that is there already."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def read(self, n: int = -1) -> bytes:
        """Return the next `n` bytes, all that are left when `n` is negative."""
        cut = len(self._body) if n < 0 else n
        piece, self._body = self._body[:cut], self._body[cut:]
        return piece


class ServerResponse:
    """A whole response."""

    def __init__(
        self,
        status: int,
        headers: RawHeaders,
        body: bytes,
        *,
        method: str,
        url: str,
        url_path: str,
        server_name: str | None = None,
        server_kind: str | None = None,
    ) -> None:
        self.status = status
        self.headers = Headers(headers)
        self.body = body
        self.method = method
        self.url = url
        self.url_path = url_path
        self.server_name = server_name
        self.server_kind = server_kind
        self.content = _Content(body)
        self._cookies: SimpleCookie | None = None

    @property
    def ok(self) -> bool:
        """Whether the status is below 400."""
        return self.status < 400

    @property
    def cookies(self) -> SimpleCookie:
        """The cookies that this response sets; can be handed to the next call as `cookies=`."""
        if self._cookies is None:
            self._cookies = SimpleCookie()
            for line in self.headers.getall("set-cookie"):
                try:
                    self._cookies.load(line)
                except CookieError:
                    continue
        return self._cookies

    async def read(self) -> bytes:
        """Return the body."""
        return self.body

    async def text(self, encoding: str = "utf-8") -> str:
        """Return the body as text; what cannot be decoded is replaced."""
        return self.body.decode(encoding, "replace")

    async def json(self) -> Any:
        """Return the body as a JSON value; raises `ValueError` with its text when it is none."""
        try:
            return loads_strictly(self.body)
        except JsonError as problem:
            raise ValueError(
                f"{self.server_name or self.url}: the answer to {self.method} {self.url_path} is "
                f"not JSON ({problem}): {self.body[:_SHOWN_CHARACTERS]!r}"
            ) from None

    def raise_for_status(self) -> None:
        """Raise `CallFailed` for a status of 400 and above."""
        if not self.ok:
            raise CallFailed(self)

    def __repr__(self) -> str:
        return f"<ServerResponse {self.method} {self.url} {self.status}>"


class _Nothing(Awaitable[None]):
    """Lets `raise_for_status` be awaited or not, as components do either."""

    def __await__(self) -> Generator[None]:
        yield from ()


_NOTHING = _Nothing()


def raise_for_status(response: ServerResponse) -> Awaitable[None]:
    """Raise `CallFailed` at once for a status of 400 and above. The result may be awaited."""
    response.raise_for_status()
    return _NOTHING


async def get_response_json(response: ServerResponse) -> Any:
    """Return the body of `response` as a JSON value."""
    return await response.json()
