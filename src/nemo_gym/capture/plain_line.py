"""The stored line of a call of the commonest kind, in fewer steps than any call needs. Pure.

Most calls are a JSON object answered by a JSON object with 200, and there is nothing to note about
them. `exchange_line` asks such a call for everything that can be the matter with one, and that is
most of what making its line costs. Here the call is made sure to be of this kind, and its line is
put together; what comes out is what `exchange_line` makes of it, byte for byte.
"""

from dataclasses import dataclass
from functools import lru_cache

from nemo_gym.capture.exchange import line_head, told_of_response
from nemo_gym.capture.facts import CallFacts, Source, UpstreamAttempt
from nemo_gym.wire.dialects import Dialect
from nemo_gym.wire.embed import embed_strictly
from nemo_gym.wire.json import dumps

__all__ = ["PlainCall", "plain_line"]


@dataclass(slots=True)  # half of what a named tuple costs
class PlainCall:
    """A call that was answered 200 in one message, by what begins as a JSON object does.

    Neither body is encoded or cut short, nobody went away, and the client named no session.
    """

    dialect: Dialect
    started_at: float
    """UTC Unix seconds at which the request was received."""
    latency_ms: float
    """From receipt of the request to the end of the response, in ms."""
    latency_ttft_ms: float
    """From receipt of the request to the message of the response, in ms."""
    request: bytes
    response: bytes


def plain_line(
    call: PlainCall, facts: CallFacts, model_call_id: str, model_ref_name: str
) -> bytes | None:
    """Return the stored line of the call; None: there is more to say, and `exchange_line` does.

    `facts` is what the forwarder knows, `model_ref_name` the instance name of the model server.
    """
    if (
        facts.notes
        or facts.request_open
        or facts.unsearched
        or facts.error_category is not None
        or len(facts.attempts) > 1
    ):
        return None
    request, response = embed_strictly(call.request), embed_strictly(call.response)
    if request is None or response is None:
        return None
    sent, said = request[0], response[0]
    # Of a Responses object that is not completed these say why.
    if response[2] or (response[1] is not None and response[1] != "completed"):
        return None
    head = line_head(model_call_id, model_ref_name, call, 200, None)
    status = facts.attempts[0].status if facts.attempts else None
    tail = _tail(facts.source, facts.local_reason, bool(facts.attempts), status)
    return b"".join((head, b',"request":', sent, b',"response":', said, tail))


@lru_cache(maxsize=256)
def _tail(source: Source | None, reason: str | None, attempted: bool, status: int | None) -> bytes:
    """Return what follows the bodies: there are as many as ways in which calls go well."""
    attempts = [UpstreamAttempt(0.0, status=status)] if attempted else []
    told = told_of_response(CallFacts(source, reason, attempts=attempts))
    return b"," + dumps(told)[1:]
