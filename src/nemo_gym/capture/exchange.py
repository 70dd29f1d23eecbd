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

from functools import lru_cache
from typing import NamedTuple, Protocol

import orjson

from nemo_gym.capture.body import TappedBody
from nemo_gym.capture.client_ids import client_assistant_message_id, client_session_id
from nemo_gym.capture.error_category import error_category
from nemo_gym.capture.facts import CallFacts, UpstreamAttempt
from nemo_gym.capture.hiding import BodyHider, credentials_of
from nemo_gym.capture.raw_text import RawText, base64_text, plain_text
from nemo_gym.capture.tap import Phase, Tapped
from nemo_gym.wire.dialects import Dialect
from nemo_gym.wire.dialects.base import Assembled
from nemo_gym.wire.embed import EmbeddedBody, embed
from nemo_gym.wire.json import dumps

__all__ = ["exchange_line", "line_head", "told_of_response"]

_NO_KEYS: frozenset[str] = frozenset()


class _Stored(NamedTuple):
    """One body as the line has it."""

    json: bytes
    """Of `request` or `response`: an object, or null."""
    raw: RawText | None
    """Of `request_raw` or `response_raw`."""
    body: EmbeddedBody | None


def exchange_line(
    tapped: Tapped,
    facts: CallFacts | None,
    *,
    model_call_id: str,
    model_ref_name: str,
    secrets: frozenset[str] = _NO_KEYS,
) -> bytes:
    """Return the stored line of one call: one JSON object, without a line end.

    `facts` is what the forwarder knows; None: there was none. `model_ref_name` is the instance
    name of the model server. No id of the client's that tells one of `secrets`, or of those that
    `facts` has, is in the line.
    """
    request = _stored(tapped.request, _embedded(tapped.request), None)
    embedded = None if tapped.stream is not None else _embedded(tapped.response)
    category = error_category(tapped, facts, embedded)
    assembled = None if tapped.stream is None else _assembled(tapped.stream)
    hider = _hider(tapped, facts, category, assembled)
    if tapped.stream is None:
        response = _stored(tapped.response, embedded, hider)
    else:
        json = b"null" if assembled is None else _hidden(assembled, hider)
        response = _Stored(json, _raw(tapped.response, hider), None)
    head = line_head(model_call_id, model_ref_name, tapped, tapped.status, category)
    parts = [head, b',"request":', request.json, b',"response":', response.json]
    if request.raw is not None:
        parts += (b',"request_raw":', *request.raw.json)
    if response.raw is not None:
        parts += (b',"response_raw":', *response.raw.json)
    ids = _client_ids(tapped, facts, secrets) if tapped.has_client_ids else {}
    optional = _optional(tapped, facts, request, response, ids=ids, hider=hider)
    parts.append(b"," + dumps(optional)[1:] if optional else b"}")
    return b"".join(parts)


class TimedCall(Protocol):
    """What the head of a line says of a call."""

    @property
    def dialect(self) -> Dialect:
        """Of its route."""
        ...

    @property
    def started_at(self) -> float:
        """UTC Unix seconds at which the request was received."""
        ...

    @property
    def latency_ms(self) -> float:
        """From receipt of the request to the end of the response, in ms."""
        ...

    @property
    def latency_ttft_ms(self) -> float | None:
        """From receipt of the request to the first body bytes that carry data; None: none came."""
        ...


def line_head(
    model_call_id: str,
    model_ref_name: str,
    call: TimedCall,
    status: int | None,
    category: str | None,
) -> bytes:
    """Return a stored line as far as its bodies, which a comma parts from it."""
    started_at, latency_ms = call.started_at, call.latency_ms
    head = {
        "model_call_id": model_call_id,
        "dialect": call.dialect.name,
        "model_ref": _model_ref(model_ref_name),
        "started_at": started_at,
        "completed_at": int(started_at * 1e6 + latency_ms * 1e3 + 0.5) / 1e6,
        # Half a microsecond less than `round(ms, 3)`, which goes by way of decimal digits.
        "latency_ms": int(latency_ms * 1000 + 0.5) / 1000,
        "latency_ttft_ms": _rounded(call.latency_ttft_ms),
        "status_code": status,
        "error_category": category,
    }
    return orjson.dumps(head)[:-1]


def _hider(
    tapped: Tapped, facts: CallFacts | None, category: str | None, assembled: bytes | None
) -> BodyHider | None:
    """Return what takes secrets out of the response; None: there is nothing to look for.

    What a call without trouble brought is searched for the keys of the server only, in clear, and
    only where the forwarder has not done so.
    """
    if category is None and (tapped.status is None or tapped.status < 300):
        if facts is None or not facts.unsearched:
            return None
        texts = (tapped.response.data, assembled or b"")
        found = any(key.encode() in text for key in facts.keys for text in texts)
        return BodyHider(facts.keys, (), in_error=False) if found else None
    keys, own = (facts.keys, facts.secrets) if facts is not None else (_NO_KEYS, _NO_KEYS)
    credentials = credentials_of(tapped.call.headers, tapped.call.query)
    in_error = tapped.status is None or tapped.status >= 400
    return BodyHider(keys, own | credentials, in_error=in_error)


def _hidden(response: bytes, hider: BodyHider | None) -> bytes:
    hidden = response if hider is None else hider.data(response)
    if hidden is response:
        return response
    embedded = embed(hidden)  # as deep as any
    return b"null" if embedded is None else embedded.json


@lru_cache(maxsize=64)
def _model_ref(name: str) -> dict[str, str]:
    return {"type": "responses_api_models", "name": name}


def _embedded(body: TappedBody) -> EmbeddedBody | None:
    """Return the body if it is one JSON object, and all of it is there."""
    if body.undecodable is not None or body.truncated_at is not None or not body.data:
        return None
    return embed(body.data)


def _assembled(stream: Assembled) -> bytes | None:
    try:
        return dumps(stream.response)
    except RecursionError:  # nested deeper than JSON can be written; the text has it all
        return None


def _stored(body: TappedBody, embedded: EmbeddedBody | None, hider: BodyHider | None) -> _Stored:
    if embedded is not None:
        raw = None if embedded.exact else plain_text(body.data, hider)
        return _Stored(_hidden(embedded.json, hider), raw, embedded)
    if body.undecodable is None and not body.data:
        return _Stored(b"null", None, None)
    return _Stored(b"null", _raw(body, hider), None)


def _raw(body: TappedBody, hider: BodyHider | None) -> RawText:
    if body.undecodable is None:
        return plain_text(body.data, hider)
    return base64_text(body.undecodable, hider, body.data)


def _optional(
    tapped: Tapped,
    facts: CallFacts | None,
    request: _Stored,
    response: _Stored,
    *,
    ids: dict[str, object],
    hider: BodyHider | None,
) -> dict[str, object]:
    """Return the keys behind the bodies that a line has only where there is something to say."""
    optional: dict[str, object] = {}
    if facts is not None:
        optional |= told_of_response(facts)
    optional |= ids
    if facts is not None and len(facts.attempts) > 1:
        optional["upstream_attempts"] = [_attempt(attempt, hider) for attempt in facts.attempts]
    as_json = request.raw is None and response.raw is None
    if not (
        as_json
        and hider is None
        and _is_whole(tapped)
        and (facts is None or not (facts.notes or facts.request_open))
    ):
        notes = _notes(tapped, facts)
        if tapped.stream is not None and tapped.stream.response and response.json == b"null":
            notes["nested_too_deeply"] = ["response"]
        _note_texts(notes, request, response, hider)
        if notes:
            optional["notes"] = notes
    return optional


def _client_ids(
    tapped: Tapped, facts: CallFacts | None, secrets: frozenset[str]
) -> dict[str, object]:
    """Return the ids that the client sent and that may be kept."""
    call = tapped.call
    if facts is not None:
        secrets |= facts.secrets
    found = {
        "client_session_id": client_session_id(call.headers, call.query, secrets),
        "client_assistant_message_id": client_assistant_message_id(
            call.headers, call.query, secrets
        ),
    }
    return {key: value for key, value in found.items() if value is not None}


def _note_texts(
    notes: dict[str, object], request: _Stored, response: _Stored, hider: BodyHider | None
) -> None:
    """Note where what is kept of the bodies is not just what crossed the boundary."""
    raws = {"request": request.raw, "response": response.raw}
    bad = {name: raw.not_utf8 for name, raw in raws.items() if raw is not None and raw.not_utf8}
    if bad:
        notes["not_utf8"] = bad
    packed = [name for name, raw in raws.items() if raw is not None and raw.is_base64]
    if packed:
        notes["undecodable_body"] = packed
    if hider is None:
        return
    partial = notes.get("upstream_body")
    if isinstance(partial, str):
        notes["upstream_body"] = hider.beginning(hider.text(partial))
    earlier = notes.pop("hidden", 0)
    count = hider.hidden + (earlier if isinstance(earlier, int) else 0)
    if count:
        notes["hidden"] = count


def _is_whole(tapped: Tapped) -> bool:
    """Say whether there is nothing to note about a call but what the forwarder knows."""
    bodies_whole = tapped.request.is_whole and tapped.response.is_whole
    return tapped.stream is None and tapped.phase is None and bodies_whole


def told_of_response(facts: CallFacts) -> dict[str, object]:
    """Return what a line says of where its response came from."""
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


def _attempt(attempt: UpstreamAttempt, hider: BodyHider | None) -> dict[str, object]:
    result: dict[str, object] = {"status": attempt.status}
    if attempt.status is None:
        error = attempt.error
        result = {"error": error if error is None or hider is None else hider.text(error)}
    return {**result, "started_at": attempt.started_at, "ms": _rounded(attempt.ms)}


def _notes(tapped: Tapped, facts: CallFacts | None) -> dict[str, object]:
    notes: dict[str, object] = dict(facts.notes) if facts is not None else {}
    if tapped.stream is not None:
        notes |= tapped.stream.notes
    if tapped.phase is not None:
        notes["phase"] = _phase(tapped.phase, facts).value
    request = tapped.request
    if facts is not None and facts.request_open and request.truncated_at is None:
        request = request._replace(broken_off=True)
    notes |= _notes_on_bodies(request, tapped.response)
    return notes


def _phase(phase: Phase, facts: CallFacts | None) -> Phase:
    """Return how far the response was: the forwarder keeps its beginning back."""
    last = facts.attempts[-1] if facts is not None and facts.attempts else None
    if facts is None or last is None or last.status is None or phase is not Phase.BEFORE_HEADERS:
        return phase
    if last.status >= 400 and last.error is None:
        return phase  # an answer that was given up for another try
    came = facts.notes.get("upstream_body")
    return Phase.MID_STREAM if isinstance(came, str) and came.strip() else Phase.BEFORE_DATA


def _notes_on_bodies(request: TappedBody, response: TappedBody) -> dict[str, object]:
    if request.is_whole and response.is_whole:
        return {}
    notes: dict[str, object] = {}
    bodies = (("request", request), ("response", response))
    limit = request.truncated_at if request.truncated_at is not None else response.truncated_at
    if limit is not None:
        notes["truncated_at"] = limit
        notes["truncated_bodies"] = [n for n, body in bodies if body.truncated_at is not None]
    broken_off = [name for name, body in bodies if body.broken_off]
    if broken_off:
        notes["broken_off_body"] = broken_off
    return notes


def _rounded(ms: float | None) -> float | None:
    return None if ms is None else int(ms * 1000 + 0.5) / 1000
