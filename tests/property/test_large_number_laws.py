"""A whole number beyond 64 bits stays itself on every way through the system."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from nemo_gym.capture.reading import load_line
from nemo_gym.files.jsonl import read_jsonl_objects
from nemo_gym.records.model_call import build
from nemo_gym.resources_servers.raw_answers import with_members
from nemo_gym.responses_api_agents.simple_agent.app import _verify_body
from nemo_gym.responses_api_agents.simple_agent.loop import _Request
from nemo_gym.servers.raw import json_bytes, json_object
from nemo_gym.servers.synthetic_stream import chat_events, responses_events
from nemo_gym.transport import outgoing
from nemo_gym.transport.response import ServerResponse
from nemo_gym.wire.dialects import CHAT, MESSAGES, RESPONSES
from nemo_gym.wire.embed import embed
from nemo_gym.wire.json import as_object, dumps, loads, loads_strictly
from support.reassembly import assemble, bytewise
from support.sse import DONE, block, chunk, message_end, message_start, typed

LARGE = 12345678901234567890123
_numbers = st.integers(-(10**60), 10**60)
_plain = st.recursive(
    st.none() | st.booleans() | _numbers | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab"), inner),
    max_leaves=12,
)  # fmt: skip


def same(left: object, right: object) -> bool:
    """Equal, and of the same types: 1 is not 1.0 here."""
    return repr(left) == repr(right)


@given(_plain)
def test_json_is_read_as_the_standard_library_reads_it_and_written_as_it_is(value: object) -> None:
    text = json.dumps(value)

    for read in (loads(text), loads_strictly(text.encode()), load_line(text.encode())):
        assert same(read, value)
    for written in (dumps(value), outgoing.json_bytes(value), json_bytes(value)):
        assert same(json.loads(written), value)


@pytest.mark.parametrize("text", ["[1e400]", '["\\ud83d"]', "[NaN]", "\ufeff[]", "[" * 9999, "[1"])
def test_what_is_no_strict_json_is_an_error_of_one_kind(text: str) -> None:
    for given_as in (text, text.encode()):
        with pytest.raises(ValueError, match=r"\w"):
            loads_strictly(given_as)


def test_what_nests_deep_is_read_unless_a_number_would_be_changed() -> None:
    deep = b"[" * 1000 + b"%d" + b"]" * 1000

    assert loads_strictly(deep % 7)
    with pytest.raises(ValueError, match="nested too deeply"):
        loads_strictly(deep % LARGE)


class _Paid(BaseModel):
    wei: Any


def test_models_dates_and_keys_of_numbers_are_written_beside_a_large_number() -> None:
    value = {1: _Paid(wei=LARGE), "all": {LARGE}, None: (LARGE, float("nan"))}

    written = json.loads(outgoing.json_bytes(value))
    assert written == {"1": {"wei": LARGE}, "all": [LARGE], "null": [LARGE, None]}
    assert json.loads(json_bytes([_Paid(wei=LARGE)])) == [{"wei": LARGE}]
    with pytest.raises(TypeError):
        json_bytes([LARGE, object()])


async def test_servers_hand_it_on(tmp_path: Path) -> None:
    body = b'{"wei": %d}' % LARGE
    reply = ServerResponse(200, [], body, method="POST", url="u", url_path="/")
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(body + b"\n")

    value = json_object(body)
    assert value == await reply.json() == {"wei": LARGE}
    assert [row for _, row in read_jsonl_objects(rows)] == [value]
    assert json.loads(with_members(b"{}", value)) == value
    completion = {"choices": [{"message": {"content": "a"}}], "usage": value}
    for events in (responses_events({"output": [value | {"type": "x"}]}),
                   chat_events(completion, include_usage=True)):  # fmt: skip
        assert str(LARGE) in b"".join(events).decode()


def _piece(text: str) -> dict[str, str]:
    return {"type": "input_json_delta", "partial_json": text}


@pytest.mark.parametrize("cut", [False, True])
def test_what_a_stream_amounts_to_has_it(cut: bool) -> None:
    tool = {"type": "tool_use", "id": "t", "name": "pay", "input": {}}
    text = f'{{"wei":{LARGE}' + ("" if cut else "}")
    body = message_start(cost=LARGE) + block(0, tool, _piece(text[:9]), _piece(text[9:]))
    body += message_end(output_tokens=1)

    response: Any = assemble(MESSAGES, bytewise(body)).response
    assert response["content"][0]["input"] == {"wei": LARGE}
    assert response["usage"]["cost"] == LARGE


def test_events_that_are_alike_but_for_a_word_have_it() -> None:
    words = [chunk({"content": "a"}, seed=LARGE) for _ in range(200)]
    deltas = [typed("response.output_text.delta", delta="a", at=LARGE) for _ in range(200)]
    end = typed("response.completed", response={"id": "r", "n": LARGE, "output": []})

    chat: Any = assemble(CHAT, [*words, DONE]).response
    response: Any = assemble(RESPONSES, [*deltas, end]).response
    assert (chat["seed"], chat["choices"][0]["message"]["content"]) == (LARGE, "a" * 200)
    assert (response["n"], response["output"][0]["content"][0]["text"]) == (LARGE, "a" * 200)


def test_a_record_of_a_model_call_has_it() -> None:
    tool = {"type": "tool_use", "id": "t", "name": "pay", "input": {"wei": LARGE}}
    stored = embed(dumps({"content": [tool]}))
    assert stored is not None
    line = b'{"dialect":"messages","request":{"seed":%d},"response":%b}' % (LARGE, stored.json)

    record = build(as_object(load_line(line)) or {}, 0)
    assert record.tool_calls == [{"call_id": "t", "name": "pay", "arguments": {"wei": LARGE}}]
    assert record.request == {"seed": LARGE}
    assert str(LARGE) in record.model_dump_json()


def test_the_built_in_agent_sends_it_on() -> None:
    row = {"seed": LARGE, "response": "of before"}
    answer = dumps({"output": [{"type": "x", "wei": LARGE}]})

    verified = json.loads(_verify_body(dumps(row), row, answer))
    request = _Request({"input": [{"wei": LARGE}], "seed": LARGE})
    request.extend(verified["response"]["output"])

    assert verified == {"seed": LARGE, "response": {"output": [{"type": "x", "wei": LARGE}]}}
    assert json.loads(request.body())["input"][1] == {"type": "x", "wei": LARGE}
    assert json.loads(request.body())["seed"] == LARGE
