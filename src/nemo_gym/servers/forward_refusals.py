"""What a model server answers by itself, in the client's dialect. Pure.

A path or a failure goes in; a status, a sentence that says what to do, and a code go out.
"""

from dataclasses import dataclass

from nemo_gym.errors import CallTimeout, ConnectFailed, ReplyInvalid
from nemo_gym.servers.failures import REFUSAL_HEADER
from nemo_gym.servers.forward_paths import (
    dialect_under,
    has_v1_twice,
    is_ambiguous,
    is_passed_on,
)
from nemo_gym.servers.forward_tries import Unanswered
from nemo_gym.servers.provider import MODEL_TYPES_BY_DIALECT, Provider
from nemo_gym.transport.base import RawHeaders
from nemo_gym.wire.dialects import DIALECTS, Dialect, error_body

__all__ = ["Refusal", "not_answered", "refusal_for"]

_NAMES = {"responses": "Responses", "chat": "Chat Completions", "messages": "Messages"}


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error that this server answers."""

    status: int
    message: str
    code: str
    category: str | None = None
    """`error_category` of the call's record, where the status does not tell."""

    def body(self, dialect: Dialect) -> bytes:
        """Return the JSON body in the shape of `dialect`."""
        return error_body(dialect, self.status, self.message, self.code)

    def headers(self, length: int) -> RawHeaders:
        """Return the headers. The official clients are told not to try again: we have.

        The code tells the answers of this server from those of its provider, in every dialect.
        """
        return [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % length),
            (b"x-should-retry", b"false"),
            (REFUSAL_HEADER.encode(), self.code.encode()),
        ]


def refusal_for(provider: Provider, dialect: Dialect, method: str, path: bytes) -> Refusal | None:
    """Return why a request goes no further; None for one that is forwarded."""
    if has_v1_twice(path):
        message = "the path has /v1 twice: take /v1 off the end of the client's base URL"
        return Refusal(404, message, "path_has_v1_twice")
    if is_ambiguous(path):
        message = (
            "the path has an encoded slash or a dot segment, or another spelling of a model route: "
            "spell it out without"
        )
        return Refusal(400, message, "path_ambiguous")
    if not is_passed_on(path):
        return Refusal(404, _unknown(provider, path), "route_unknown")
    if dialect_under(path) is not None and dialect.name not in provider.dialects:
        return Refusal(400, _not_spoken(provider, dialect), "dialect_not_spoken")
    if path == dialect.route and method != "POST":
        return Refusal(405, f"{path.decode('latin-1')} takes POST, not {method}", "method_unknown")
    return None


def not_answered(unanswered: Unanswered) -> Refusal:
    """Return what a client hears of a provider from which no answer came."""
    problem, tries = unanswered.problem, unanswered.tries
    after = f" ({tries} tries in {unanswered.took_s:.1f} s)" if tries > 1 else ""
    if isinstance(problem, CallTimeout):
        status, code, category = 504, "upstream_timeout", "timeout"
    elif isinstance(problem, ConnectFailed):
        status, code, category = 502, "upstream_unreachable", "connection"
    elif isinstance(problem, ReplyInvalid):
        status, code, category = 502, "upstream_reply_invalid", "connection"
    else:
        status, code, category = 502, "upstream_connection_lost", "connection"
    return Refusal(status, f"no answer from the model provider: {problem}{after}", code, category)


def _not_spoken(provider: Provider, dialect: Dialect) -> str:
    speakers = ", ".join(MODEL_TYPES_BY_DIALECT[dialect.name])
    spoken = ", ".join(
        f"{_NAMES[d.name]} ({d.route.decode()})" for d in DIALECTS if d.name in provider.dialects
    )
    return (
        f"the provider of this model server does not speak {_NAMES[dialect.name]} "
        f"({dialect.route.decode()}); it speaks {spoken}. "
        f"Model types that speak {_NAMES[dialect.name]}: {speakers}"
    )


def _unknown(provider: Provider, path: bytes) -> str:
    shown = path.decode("latin-1")
    if dialect_under(path) is not None:
        return f"no route {shown}: put /v1 at the end of the client's base URL"
    routes = ", ".join(d.route.decode() for d in DIALECTS if d.name in provider.dialects)
    return (
        f"no route {shown}: this model server has {routes}, and passes on what else its provider "
        "has under /v1/; is /v1 missing at the end of the client's base URL?"
    )
