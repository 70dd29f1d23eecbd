"""Records of one rollout in, the calls that a later try took the place of out. Pure.

Clients try again by themselves: after an error, after a stream that broke off, sometimes without
streaming. Each try is a call of its own with a row of its own, and all of them count in the totals.
Whoever wants what the conversation took leaves the superseded ones out.
"""

import json
from collections.abc import Iterable
from hashlib import blake2b

from nemo_gym.records.model_call import ModelCallRecord
from nemo_gym.wire.deep_json import pieces_by_loop

__all__ = ["request_digest", "superseded_calls"]

# How an answer is to come, not what is asked.
_OF_THE_WAY = frozenset({"stream", "stream_options"})


def request_digest(call: ModelCallRecord) -> str | None:
    """Return what tells whether two calls asked the same, streamed or not; None: nothing is known.

    Needs the payload of the request, as `read_model_call_records` gives it.
    """
    if call.request is not None:
        asked = {key: value for key, value in call.request.items() if key not in _OF_THE_WAY}
        text = _in_one_way(asked)
    elif call.request_raw is not None:
        text = call.request_raw
    else:
        return None
    return blake2b(f"{call.dialect} {text}".encode(errors="replace"), digest_size=16).hexdigest()


def _in_one_way(asked: dict[str, object]) -> str:
    """Return the same text for the same value, however deep it is."""
    try:
        return json.dumps(asked, sort_keys=True)
    except RecursionError:
        return "".join(pieces_by_loop(asked, sort_keys=True))


def superseded_calls(calls: Iterable[ModelCallRecord]) -> dict[int, int]:
    """Return the `call_index` of each failed call that was asked again, and of the next try.

    A call is asked again when a later one has the same request. One that went well is superseded
    by nothing: asking twice is then what the client wanted.
    """
    found: dict[int, int] = {}
    next_try: dict[str, int] = {}
    for call in sorted(calls, key=lambda call: call.call_index, reverse=True):
        digest = request_digest(call)
        if digest is None:
            continue
        if call.error_category is not None and digest in next_try:
            found[call.call_index] = next_try[digest]
        next_try[digest] = call.call_index
    return dict(sorted(found.items()))
