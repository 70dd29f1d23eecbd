"""One tapped call in, one stored line out. Pure: ids are handed in, nothing is written.

::

    line = exchange_line(
        tapped, facts, model_call_id=uuid4().hex, model_ref_name="policy_model"
    )

The line has the documented keys in the documented order, then those that apply of: `request_raw`,
`response_raw`, `response_source`, `upstream_attempted`, `upstream_status_code`,
`local_response_reason`, `client_session_id`, `client_assistant_message_id`, `upstream_attempts`,
`notes`. Bodies that are JSON objects stand in it as they crossed the boundary.
"""

from base64 import b64encode
from functools import lru_cache
from typing import NamedTuple

import orjson

from nemo_gym.capture.body import TappedBody
from nemo_gym.capture.error_category import error_category
from nemo_gym.capture.facts import CallFacts, UpstreamAttempt
from nemo_gym.capture.hiding import Hider, credentials_of
from nemo_gym.capture.tap import Phase, Tapped
from nemo_gym.wire.embed import EmbeddedBody, embed
from nemo_gym.wire.json import dumps, loads

__all__ = ["exchange_line"]


class _Stored(NamedTuple):
    """One body as the line has it."""

    json: bytes
    """Of `request` or `response`: an object, or null."""
    raw: str | None
    """Of `request_raw` or `response_raw`."""
    body: EmbeddedBody | None


def exchange_line(
    tapped: Tapped, facts: CallFacts | None, *, model_call_id: str, model_ref_name: str
) -> bytes:
    """Return the stored line of one call: one JSON object, without a line end.

    `facts` is what the forwarder knows; None: there was none. `model_ref_name` is the instance
    name of the model server.
    """
    request, response = _stored(tapped.request), _response(tapped)
    category = error_category(tapped, facts, response.body)
    head = {
        "model_call_id": model_call_id,
        "dialect": tapped.dialect.name,
        "model_ref": _model_ref(model_ref_name),
        "started_at": tapped.started_at,
        "completed_at": int(tapped.started_at * 1e6 + tapped.latency_ms * 1e3 + 0.5) / 1e6,
        "latency_ms": _rounded(tapped.latency_ms),
        "latency_ttft_ms": _rounded(tapped.latency_ttft_ms),
        "status_code": tapped.status,
        "error_category": category,
    }
    optional = _optional(tapped, facts, request, response)
    response_json = response.json
    if category is not None:
        response_json, optional = _without_secrets(tapped, facts, response_json, optional)
    return b"".join(
        (
            orjson.dumps(head)[:-1],
            b',"request":',
            request.json,
            b',"response":',
            response_json,
            b"," + dumps(optional)[1:] if optional else b"}",
        )
    )


def _without_secrets(
    tapped: Tapped, facts: CallFacts | None, response: bytes, optional: dict[str, object]
) -> tuple[bytes, dict[str, object]]:
    """Return what a failed call left, without credentials that an error text repeats."""
    own = facts.secrets if facts is not None else frozenset[str]()
    hider = Hider(own | credentials_of(tapped.call.headers, tapped.call.query))
    if hider.is_in(response):
        response = _hidden(response, hider)
    return response, {key: hider.value(value) for key, value in optional.items()}


def _hidden(response: bytes, hider: Hider) -> bytes:
    try:
        return dumps(hider.value(loads(response)))
    except RecursionError:  # nested deeper than Python goes; its text is no deeper than any
        embedded = embed(hider.data(response))
        return b"null" if embedded is None else embedded.json


@lru_cache(maxsize=64)
def _model_ref(name: str) -> dict[str, str]:
    return {"type": "responses_api_models", "name": name}


def _stored(body: TappedBody) -> _Stored:
    if body.undecodable is not None:
        return _Stored(b"null", b64encode(body.undecodable).decode(), None)
    if not body.data:
        return _Stored(b"null", None, None)
    embedded = embed(body.data)
    if embedded is None:
        return _Stored(b"null", _text(body.data), None)
    return _Stored(embedded.json, None if embedded.exact else _text(body.data), embedded)


def _response(tapped: Tapped) -> _Stored:
    if tapped.stream is None:
        return _stored(tapped.response)
    body = tapped.response
    raw = _text(body.data) if body.undecodable is None else b64encode(body.undecodable).decode()
    try:
        return _Stored(dumps(tapped.stream.response), raw, None)
    except RecursionError:  # nested deeper than JSON can be written; the text has it all
        return _Stored(b"null", raw, None)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _optional(
    tapped: Tapped, facts: CallFacts | None, request: _Stored, response: _Stored
) -> dict[str, object]:
    """Return the keys that a line has only where there is something to say, in order."""
    optional: dict[str, object] = {}
    if request.raw is not None:
        optional["request_raw"] = request.raw
    if response.raw is not None:
        optional["response_raw"] = response.raw
    if facts is not None:
        optional |= _of_facts(facts)
    if tapped.client_session_id is not None:
        optional["client_session_id"] = tapped.client_session_id
    if tapped.client_assistant_message_id is not None:
        optional["client_assistant_message_id"] = tapped.client_assistant_message_id
    if facts is not None and len(facts.attempts) > 1:
        optional["upstream_attempts"] = [_attempt(attempt) for attempt in facts.attempts]
    if not (_is_whole(tapped) and (facts is None or not facts.notes)):
        notes = _notes(tapped, facts)
        if tapped.stream is not None and response.json == b"null":
            notes["nested_too_deeply"] = ["response"]
        if notes:
            optional["notes"] = notes
    return optional


def _is_whole(tapped: Tapped) -> bool:
    """Say whether there is nothing to note about a call but what the forwarder knows."""
    bodies_whole = tapped.request.is_whole and tapped.response.is_whole
    return tapped.stream is None and tapped.phase is None and bodies_whole


def _of_facts(facts: CallFacts) -> dict[str, object]:
    attempts = facts.attempts
    found: dict[str, object] = {}
    if facts.source is not None:
        found["response_source"] = facts.source
    found["upstream_attempted"] = bool(attempts)
    for attempt in attempts:
        if attempt.status is not None:
            found["upstream_status_code"] = attempt.status
    if facts.local_reason is not None:
        found["local_response_reason"] = facts.local_reason
    return found


def _attempt(attempt: UpstreamAttempt) -> dict[str, object]:
    result: dict[str, object] = (
        {"error": attempt.error} if attempt.status is None else {"status": attempt.status}
    )
    return {**result, "started_at": attempt.started_at, "ms": _rounded(attempt.ms)}


def _notes(tapped: Tapped, facts: CallFacts | None) -> dict[str, object]:
    notes: dict[str, object] = dict(facts.notes) if facts is not None else {}
    if tapped.stream is not None:
        notes |= tapped.stream.notes
    if tapped.phase is not None:
        notes["phase"] = _phase(tapped.phase, facts).value
    notes |= _notes_on_bodies(tapped.request, tapped.response)
    return notes


def _phase(phase: Phase, facts: CallFacts | None) -> Phase:
    """Return how far the response was: the forwarder keeps a head back until data comes."""
    status = facts.attempts[-1].status if facts is not None and facts.attempts else None
    begun = status is not None and status < 400
    return Phase.BEFORE_DATA if phase is Phase.BEFORE_HEADERS and begun else phase


def _notes_on_bodies(request: TappedBody, response: TappedBody) -> dict[str, object]:
    if request.is_whole and response.is_whole:
        return {}
    notes: dict[str, object] = {}
    bodies = (("request", request), ("response", response))
    limit = request.truncated_at if request.truncated_at is not None else response.truncated_at
    if limit is not None:
        notes["truncated_at"] = limit
        notes["truncated_bodies"] = [n for n, body in bodies if body.truncated_at is not None]
    undecodable = [name for name, body in bodies if body.undecodable is not None]
    if undecodable:
        notes["undecodable_body"] = undecodable
    broken_off = [name for name, body in bodies if body.broken_off]
    if broken_off:
        notes["broken_off_body"] = broken_off
    return notes


def _rounded(ms: float | None) -> float | None:
    # Half a microsecond less than `round(ms, 3)`, which goes by way of decimal digits.
    return None if ms is None else int(ms * 1000 + 0.5) / 1000
