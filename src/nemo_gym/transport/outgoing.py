"""What a component wants to send, in the forms it may have it, in; a `Call` out. Pure."""

from collections.abc import Iterable, Mapping
from http.cookies import Morsel, SimpleCookie
from typing import Any, TypedDict
from urllib.parse import quote, urlencode

import orjson
from pydantic import BaseModel

from nemo_gym.transport.base import Call, RawHeaders
from nemo_gym.wire.json import dumps

__all__ = ["Cookies", "Options", "call_for", "json_bytes"]

Cookies = SimpleCookie | Mapping[str, Any]
"""What a response set (`response.cookies`), or names and values."""

# Left alone in a path; the percent sign because it stands for what is encoded already.
_SAFE = "/%:@!$&'()*+,;=~-._?[]"


class Options(TypedDict, total=False):
    """What a call may carry."""

    json: Any
    """A JSON value (pydantic models anywhere in it are dumped), a pydantic model, or JSON bytes."""
    data: bytes | str | Mapping[str, Any] | None
    """A body as it is, or form fields."""
    headers: Mapping[str, str] | Iterable[tuple[str, str]] | None
    params: Mapping[str, Any] | Iterable[tuple[str, Any]] | None
    """Added to the query."""
    cookies: Cookies | None
    timeout: float | None
    """Longest silence in seconds; None bears any."""


def call_for(method: str, path: str, options: Options) -> Call:
    """Return the call that `options` describe. `path` begins with a slash and may have a query."""
    headers = _headers(options.get("headers"))
    body, content_type = _body(options)
    if content_type is not None and not any(name == b"content-type" for name, _ in headers):
        headers.append((b"content-type", content_type))
    cookie = _cookie_header(options.get("cookies"))
    if cookie:
        headers.append((b"cookie", cookie))
    target = _target(path, options.get("params"))
    return Call(method, target, headers, body, options.get("timeout"))


def json_bytes(value: object) -> bytes:
    """Return `value` as JSON; bytes are JSON already."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, BaseModel):
        return value.__pydantic_serializer__.to_json(value)
    return dumps(value, _plain, option=orjson.OPT_NON_STR_KEYS)


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _body(options: Options) -> tuple[bytes, bytes | None]:
    if options.get("json") is not None:
        return json_bytes(options["json"]), b"application/json"
    data = options.get("data")
    if isinstance(data, Mapping):
        return urlencode(data, doseq=True).encode("ascii"), b"application/x-www-form-urlencoded"
    if isinstance(data, str):
        return data.encode(), b"text/plain; charset=utf-8"
    return data or b"", None


def _headers(given: Mapping[str, str] | Iterable[tuple[str, str]] | None) -> RawHeaders:
    pairs = given.items() if isinstance(given, Mapping) else given or ()
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in pairs]


def _target(path: str, params: Mapping[str, Any] | Iterable[tuple[str, Any]] | None) -> str:
    target = quote(path if path.startswith("/") else f"/{path}", safe=_SAFE)
    if params:
        pairs = params if isinstance(params, Mapping) else list(params)
        target += ("&" if "?" in target else "?") + urlencode(pairs, doseq=True)
    return target


def _cookie_header(cookies: Cookies | None) -> bytes:
    pairs = []
    for name, value in (cookies or {}).items():
        if isinstance(value, Morsel):
            if value["max-age"] != "0":  # else the cookie was taken back
                pairs.append(f"{name}={value.coded_value}")
        else:
            pairs.append(f"{name}={value}")
    return "; ".join(pairs).encode("latin-1")
