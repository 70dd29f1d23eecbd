"""No id that a client gives its session brings a key into a row or the name of a file.

And no credential takes an id away that has nothing of it.
"""

import json
from typing import Any
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.capture.client_ids import CLIENT_ID_HEADERS
from nemo_gym.capture.exchange import exchange_line
from nemo_gym.capture.facts import CallFacts
from nemo_gym.capture.tap import ExchangeTap, Headers, Request
from nemo_gym.ids import RolloutId
from nemo_gym.runtime.capture_server import session_rollout
from nemo_gym.wire.dialects import CHAT

PROCESS = RolloutId("process-1")
HEADERS = (
    *(b"authorization", b"proxy-authorization", b"x-api-key", b"api-key", b"x-goog-api-key"),
    *(b"x-auth-token", b"cookie"),
)
PREFIXES = {b"authorization": "Bearer ", b"proxy-authorization": "Bearer ", b"cookie": "a=b; sid="}

# Begun in upper case, as nothing else of these calls is.
keys = st.from_regex(r"[A-Z]{3}[A-Z0-9._~+/-]{3,60}", fullmatch=True)
around = st.from_regex(r"[a-z._-]{0,20}", fullmatch=True)
patterns = st.builds("{}{}{}".format, around, st.sampled_from(("{0}", "{1}", "Bearer {0}")), around)
"""How an id has a key, in clear or as in a URL."""
places = st.sampled_from((*HEADERS, b"?", b"upstream", b"settings"))
names = st.sampled_from(sorted(CLIENT_ID_HEADERS))


def _call(key: str, place: bytes) -> tuple[Headers, bytes, frozenset[str], frozenset[str]]:
    """Return headers, query, and secrets of forwarder and server, one of which has the key."""
    held = frozenset({key})
    none = frozenset[str]()
    if place == b"?":
        return [], b"beta=true&api_key=" + quote(key, safe="").encode(), none, none
    if place in {b"upstream", b"settings"}:
        return [], b"", *((held, none) if place == b"upstream" else (none, held))
    value = PREFIXES.get(place, "") + key
    return [(place, value.encode())], b"", none, none


def _stored(sent: tuple[bytes, bytes], key: str, place: bytes) -> tuple[dict[str, Any], str | None]:
    """Return the row of a call that has the key at `place` and sends an id, and its rollout."""
    headers, query, upstream, server = _call(key, place)
    headers = [*headers, sent]
    tap = ExchangeTap(Request(CHAT, "POST", headers, query), started_at=1.5e9, now=1.0)
    tap.response_start(200, [], 1.1)
    tap.response_body(b'{"id":"r"}', False, 1.2)
    line = exchange_line(
        tap.finish(1.3),
        CallFacts(secrets=upstream),
        model_call_id="i",
        model_ref_name="m",
        secrets=server,
    )
    assert key.encode() not in line
    rollout = session_rollout(PROCESS, upstream | server)
    return json.loads(line), rollout({"headers": headers, "query_string": query})


@given(keys, places, names, patterns)
def test_an_id_that_tells_a_key_is_nowhere(
    key: str, place: bytes, name: bytes, pattern: str
) -> None:
    sent = pattern.format(key, quote(key, safe=""))

    row, rollout = _stored((name, sent.encode()), key, place)

    assert "client_session_id" not in row
    assert "client_assistant_message_id" not in row
    assert rollout == PROCESS


@given(keys, places, names, st.from_regex(r"[a-z][a-z-]{5,40}[a-z]", fullmatch=True))
def test_an_id_that_has_nothing_of_a_key_stays(
    key: str, place: bytes, name: bytes, sent: str
) -> None:
    row, rollout = _stored((name, sent.encode()), key, place)

    kept = row.get("client_session_id"), row.get("client_assistant_message_id")
    assert kept in {(sent, None), (None, sent)}
    assert rollout == (PROCESS if kept[0] is None else sent)
