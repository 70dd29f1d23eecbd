"""A stream made from a complete response is read back as that response."""

import json
from collections.abc import Iterable
from typing import Any

from hypothesis import given

from nemo_gym.servers.synthetic_stream import chat_events, responses_events
from nemo_gym.wire.dialects import CHAT, RESPONSES, Dialect
from nemo_gym.wire.dialects.base import Assembled
from nemo_gym.wire.stream import StreamReader
from support.responses_made import chat_completions, responses


def _read(dialect: Dialect, events: Iterable[bytes]) -> Assembled:
    reader = StreamReader(dialect)
    for event in events:
        reader.feed(event, 0.0)
    return reader.finish()


@given(responses())
def test_a_response_comes_back_from_its_events(response: dict[str, Any]) -> None:
    found = _read(RESPONSES, responses_events(response))

    assert found.terminal is not None
    assert found.response == response


@given(responses())
def test_the_items_alone_carry_the_output(response: dict[str, Any]) -> None:
    *before_the_end, _ = responses_events(response)

    found = _read(RESPONSES, before_the_end)

    assert found.terminal is None
    assert found.response is not None
    assert found.response["output"] == response["output"]


@given(responses())
def test_events_are_numbered_and_named_by_their_type(response: dict[str, Any]) -> None:
    read = [event.decode().split("\n") for event in responses_events(response)]

    data = [json.loads(lines[1].removeprefix("data: ")) for lines in read]
    assert [event["sequence_number"] for event in data] == list(range(len(data)))
    assert [lines[0] for lines in read] == [f"event: {event['type']}" for event in data]


@given(chat_completions())
def test_a_completion_comes_back_from_its_chunks(completion: dict[str, Any]) -> None:
    found = _read(CHAT, chat_events(completion, include_usage=True))

    assert found.terminal is not None
    assert found.response is not None
    assert {**found.response, "usage": completion["usage"]} == completion


@given(chat_completions())
def test_usage_is_sent_only_where_it_was_asked_for(completion: dict[str, Any]) -> None:
    events = list(chat_events(completion, include_usage=False))

    told = [json.loads(event.decode().removeprefix("data: ")) for event in events[:-1]]
    assert events[-1] == b"data: [DONE]\n\n"
    assert [chunk for chunk in told if "usage" in chunk] == []
