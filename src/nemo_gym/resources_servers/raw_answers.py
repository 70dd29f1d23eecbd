"""Answers of built-in environments without validation: a body's own bytes pass through.

The members of the outermost object that are not replaced go out as the bytes they came as.
"""

from collections.abc import Mapping

import msgspec
from fastapi import FastAPI, HTTPException

from nemo_gym.servers.raw import JsonHandler, json_bytes, json_route

__all__ = ["front_json_route", "with_members"]

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER = msgspec.json.Encoder()


def with_members(raw: bytes, added: Mapping[str, object]) -> bytes:
    """Return the JSON object `raw` with members added or replaced.

    Raises `HTTPException` (400) for one that is nested too deeply to be taken apart.
    """
    try:
        members = _MEMBERS.decode(raw) if raw else {}
    except RecursionError:
        raise HTTPException(400, "the body is nested too deeply to be read") from None
    members |= {name: msgspec.Raw(json_bytes(value)) for name, value in added.items()}
    return _ENCODER.encode(members)


def front_json_route(app: FastAPI, path: str, handler: JsonHandler) -> None:
    """Answer `POST path` with `handler`, before a validated route of that path."""
    json_route(app, path, handler)
    routes = app.router.routes
    routes.insert(0, routes.pop())
