"""What a model server says to a client whose call it cuts off because it stops. Pure.

The same whether the call is captured, and then its row has it, or not.
"""

from collections.abc import Callable

from starlette.types import Message, Scope

from nemo_gym.capture.facts import REFUSAL_HEADER, SERVER_STOPPING
from nemo_gym.wire.dialects import DIALECTS, RESPONSES, Dialect, error_body

__all__ = ["stopped_calls", "stopped_response"]

_STATUS = 503


def stopped_response(dialect: Dialect, server_name: str) -> tuple[Message, Message]:
    """Return the messages of the response, in the client's dialect.

    Clients may try again, unlike after other answers of this server: another may be there by then.
    """
    said = f"{server_name} was stopped while it worked on this call"
    body = error_body(dialect, _STATUS, said, SERVER_STOPPING)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (REFUSAL_HEADER.encode(), SERVER_STOPPING.encode()),
    ]
    return (
        {"type": "http.response.start", "status": _STATUS, "headers": headers},
        {"type": "http.response.body", "body": body},
    )


def stopped_calls(server_name: str) -> Callable[[Scope], tuple[Message, Message]]:
    """Return what gives the response to any request, in the dialect that its path tells."""

    def stopped(scope: Scope) -> tuple[Message, Message]:
        path = scope["path"]
        dialect = next((d for d in DIALECTS if d.route.decode() in path), RESPONSES)
        return stopped_response(dialect, server_name)

    return stopped
