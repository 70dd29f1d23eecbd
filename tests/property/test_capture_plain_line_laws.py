"""The short way to a call's line leads to the line that any call's way leads to, or nowhere."""

import json
from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from nemo_gym.capture.exchange import exchange_line
from nemo_gym.capture.facts import CallFacts, UpstreamAttempt
from nemo_gym.capture.plain_line import plain_line
from nemo_gym.capture.tap import Headers, Request
from nemo_gym.capture.watch import CallWatch
from nemo_gym.wire.dialects import CHAT, DIALECTS, Dialect
from support.taps import JSON, SSE

_TEXTS = st.text(max_size=8)
_OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "id": _TEXTS,
        "status": st.sampled_from([None, "completed", "failed", "incomplete", "queued", 1, {}]),
        "error": st.sampled_from([None, False, {}, {"message": "m"}, "e"]),
        "n": st.sampled_from([1, 0.5, 10**40, float("nan")]),
    },
).map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
_ODD = st.sampled_from(
    [
        b"",
        b" {}",
        b"[1]",
        b"{",
        b'{"a":\n 1.50,\r\n"b":1e3}\n',
        b'{"a":"\xff"}',
        b"data: [DONE]\n\n",
    ]
)
_BODIES = st.one_of(_OBJECTS, _ODD)
_KINDS: st.SearchStrategy[Headers] = st.sampled_from(
    [
        JSON,
        JSON,
        [],
        [(b"Content-Type", b"application/json; charset=utf-8"), (b"x-request-id", b"r")],
        [(b"content-type", b"text/plain")],
        [(b"content-encoding", b"identity")],
        SSE,
    ]
)
_ATTEMPTS = st.lists(
    st.builds(UpstreamAttempt, st.just(5.0), st.just(1.0), st.sampled_from([200, 429, None])),
    max_size=2,
)
_FACTS = st.builds(
    CallFacts,
    source=st.sampled_from([None, "upstream", "local"]),
    local_reason=st.sampled_from([None, None, "cached"]),
    error_category=st.sampled_from([None, None, None, "timeout"]),
    attempts=_ATTEMPTS,
    keys=st.just(frozenset({"sk-planted-3141592653"})),
    unsearched=st.booleans(),
    request_open=st.sampled_from([False, False, True]),
    notes=st.sampled_from([{}, {}, {"dialect_mismatch": "x"}]),
)


@dataclass(frozen=True)
class Call:
    """One call that is answered in one message, and what the forwarder knows of it."""

    sent: bytes = b"{}"
    said: bytes = b"{}"
    asked: Headers = field(default_factory=lambda: JSON)
    headers: Headers = field(default_factory=lambda: JSON)
    dialect: Dialect = CHAT
    pieces: int = 1
    limit: int = 10**9
    facts: CallFacts = field(default_factory=CallFacts)

    def watched(self) -> CallWatch:
        request = Request(self.dialect, "POST", self.asked)
        watch = CallWatch(request, started_at=5.1, now=1.0, body_limit=self.limit)
        size = len(self.sent)
        for at in range(self.pieces):
            watch.request_body(self.sent[size * at // self.pieces : size * (at + 1) // self.pieces])
        watch.response_start(200, self.headers, 1.2)
        watch.response_body(self.said, False, 1.3)
        return watch


_ASKED: st.SearchStrategy[Headers] = st.sampled_from(
    [[], JSON, [(b"x-session-id", b"s")], [(b"content-encoding", b"gzip")]]
)
_CALLS = st.builds(
    Call,
    sent=_BODIES,
    said=_BODIES,
    asked=_ASKED,
    headers=_KINDS,
    dialect=st.sampled_from(DIALECTS),
    pieces=st.integers(1, 3),
    limit=st.sampled_from([10**9, 10**9, 4]),
    facts=_FACTS,
)


@given(_CALLS)
@example(Call(said=b'{"error": {"code": 1}}'))
@example(Call(said=b'{"status": "incomplete"}'))
@example(
    Call(
        said=b'{"a": "sk-planted-3141592653"}',
        facts=CallFacts(keys=frozenset({"sk-planted-3141592653"}), unsearched=True),
    )
)
@example(Call(asked=[(b"x-session-id", b"s")]))
@example(Call(headers=[(b"content-encoding", b"gzip")]))
@example(Call(facts=CallFacts(request_open=True)))
@example(Call(facts=CallFacts(notes={"a": 1})))
@example(Call(facts=CallFacts(error_category="timeout")))
@example(Call(facts=CallFacts(attempts=[UpstreamAttempt(5.0, 1.0, 429)] * 2)))
@example(Call(facts=CallFacts("local", "cached")))
@example(Call(limit=1))
def test_the_short_way_makes_the_line_of_the_long_one_or_none(call: Call) -> None:
    watch = call.watched()

    plain = watch.plain_call(1.5)
    short = None if plain is None else plain_line(plain, call.facts, "id1", "policy_model")

    tapped = watch.finish(1.5)
    whole = exchange_line(tapped, call.facts, model_call_id="id1", model_ref_name="policy_model")
    assert short in {None, whole}


@given(st.sampled_from(DIALECTS), _TEXTS, st.integers(1, 3), st.sampled_from([JSON, []]))
def test_a_json_object_answered_by_one_takes_it(
    dialect: Dialect, text: str, pieces: int, headers: Headers
) -> None:
    sent = json.dumps({"input": text}, ensure_ascii=False)
    said = json.dumps({"output": text, "status": "completed", "error": None})
    facts = CallFacts("upstream", attempts=[UpstreamAttempt(5.0, 1.0, 200)])
    call = Call(sent.encode(), said.encode(), JSON, headers, dialect, pieces=pieces, facts=facts)

    plain = call.watched().plain_call(1.5)

    assert plain is not None
    line = plain_line(plain, facts, "id1", "policy_model")
    assert line is not None
    stored = json.loads(line)
    assert (stored["response_source"], stored["upstream_status_code"]) == ("upstream", 200)
    assert stored["response"]["output"] == text
