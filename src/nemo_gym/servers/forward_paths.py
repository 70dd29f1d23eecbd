"""What a path asks of a provider: a model call, something beside it, or one in disguise. Pure.

Raw paths without rollout prefix and query go in. What a provider that tidies paths up could take
for a model call is no other request here, or it would be answered and not captured.
"""

from urllib.parse import unquote_to_bytes

from nemo_gym.wire.dialects import DIALECTS, Dialect

__all__ = ["dialect_under", "has_v1_twice", "is_ambiguous", "is_passed_on", "may_be_repeated"]

_ROUTES = tuple(dialect.route for dialect in DIALECTS)
_REPEATABLE = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE"))
# Asked twice, they cost twice and do nothing else.
_COMPUTED = frozenset(
    (b"audio", b"completions", b"embeddings", b"images", b"moderations", b"rerank")
)
_LAYERS = 4
"""Of percent-encoding; each gateway before a provider may take one off."""


def dialect_under(path: bytes) -> Dialect | None:
    """Return the dialect at whose route, or under it, this path is; also without its `/v1`."""
    while path.startswith(b"/v1/"):
        path = path[3:]
    return next((d for d in DIALECTS if _is_under(path, d.route.removeprefix(b"/v1"))), None)


def is_passed_on(path: bytes) -> bool:
    """Say whether the provider is asked: whatever is under `/v1/`, said once."""
    return path.startswith(b"/v1/") and not has_v1_twice(path)


def has_v1_twice(path: bytes) -> bool:
    """Say whether the path begins with `/v1` and again `/v1`."""
    return path == b"/v1/v1" or path.startswith(b"/v1/v1/")


def is_ambiguous(path: bytes) -> bool:
    """Say whether a provider that tidies paths up could take this one for another.

    It would serve a model call under the path of something that is not captured.
    """
    if path in _ROUTES:
        return False
    parts = [_as_read(part) for part in _unquoted(path).replace(b"\\", b"/").split(b"/")]
    if not {b".", b".."}.isdisjoint(parts):
        return True
    read = b"/" + b"/".join(part for part in parts if part)
    if any(_is_under(path, route) for route in _ROUTES):
        return len(parts) > path.count(b"/") + 1 or read in _ROUTES
    # Elsewhere names may hold a slash, those of models do.
    return any(_is_under(read, route) for route in _ROUTES)


def may_be_repeated(method: str, path: bytes) -> bool:
    """Say whether a request may be sent again although the provider may have heard it.

    What makes something over there (a file, a batch) may not.
    """
    if method in _REPEATABLE:
        return True
    parts = path.split(b"/")
    return b"batches" not in parts and (
        any(_is_under(path, route) for route in _ROUTES) or parts[2] in _COMPUTED
    )


def _is_under(path: bytes, route: bytes) -> bool:
    return path == route or path.startswith(route + b"/")


def _unquoted(path: bytes) -> bytes:
    for _ in range(_LAYERS):
        if b"%" not in path:
            break
        path = unquote_to_bytes(path)
    return path


def _as_read(segment: bytes) -> bytes:
    """Return a segment as the most helpful of servers reads it."""
    return segment.partition(b";")[0].strip().lower()
