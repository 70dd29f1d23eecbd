"""Recorded streams, written as other servers would write them, still amount to the same."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from nemo_gym.wire.dialects.base import Assembled
from nemo_gym.wire.json import loads_object
from nemo_gym.wire.sse import Event, EventParser
from support.corpus import Recording, needs_corpus, streams
from support.reassembly import assemble, bytewise

pytestmark = [needs_corpus, pytest.mark.corpus]

Change = Callable[[dict[str, Any]], dict[str, Any] | None]


def _name(recording: Recording) -> str:
    return recording.name


def _events(body: bytes) -> list[Event]:
    parser = EventParser()
    return [e for e in (*parser.feed(body), *parser.finish()) if e.data is not None]


def _written(events: Iterable[Event], end: bytes = b"\n", gap: bytes = b" ") -> bytes:
    body = b""
    for name, data in events:
        body += b"" if name is None else b"event:" + gap + name + end
        body += b"".join(b"data:" + gap + line + end for line in (data or b"").split(b"\n")) + end
    return body


def _over_lines(event: Event) -> Event:
    """The event with its JSON spread over several lines."""
    try:
        text = json.dumps(json.loads(event.data or b""), ensure_ascii=False, indent=1)
        return Event(event.name, text.encode())
    except ValueError:  # not JSON, or half of a surrogate pair
        return event


@pytest.mark.parametrize("recording", streams(), ids=_name)
def test_framing_makes_no_difference(recording: Recording) -> None:
    events = _events(recording.body)
    noise, ping = b": a comment\nid: 7\nretry: 5\nunknown: x\n", Event(b"ping", b'{"type":"ping"}')
    written = [
        _written(events, b"\r\n", b""),
        b": first\n\n" + b"".join(noise + _written([e]) + b": -\n\n" for e in events),
        _written(each for event in events for each in (ping, event)),
        _written(map(_over_lines, events)),
    ]
    if recording.dialect.name != "chat":
        written.append(_written(Event(None, event.data) for event in events))
    whole = assemble(recording.dialect, [recording.body])

    for body in written:
        assert assemble(recording.dialect, [body]) == whole
    assert assemble(recording.dialect, bytewise(_written(events, b"\r"))) == whole


def _changed(recording: Recording, change: Change) -> Any:
    """What the stream amounts to when each of its JSON objects is changed, or left out for None."""
    return assemble(recording.dialect, [_body(recording.body, change)])


def _body(body: bytes, change: Change) -> bytes:
    written: list[Event] = []
    for event in _events(body):
        try:
            value = change(json.loads(event.data or b""))
        except json.JSONDecodeError:
            written.append(event)
            continue
        if value is not None:
            written.append(Event(event.name, json.dumps(value).encode()))
    return _written(written)


def _deltas(event: dict[str, Any]) -> list[dict[str, Any]]:
    """The deltas of a Chat chunk."""
    deltas = [choice.get("delta") for choice in event.get("choices") or ()]
    return [delta for delta in deltas if isinstance(delta, dict)]


def _calls_told_by(recording: Recording, keys: set[str]) -> Any:
    """The calls of every choice when fragments have only these signs of which call they mean."""

    def change(event: dict[str, Any]) -> dict[str, Any]:
        for delta in _deltas(event):
            for call in delta.get("tool_calls") or ():
                for key in {"index", "id"} - keys:
                    call.pop(key, None)
        return event

    return _calls(_changed(recording, change), keys)


def _calls(assembled: Assembled, keys: set[str]) -> list[Any]:
    response: Any = assembled.response
    kept = {"type", "function", "custom", *keys}
    return [
        [{k: v for k, v in call.items() if k in kept} for call in choice["message"]["tool_calls"]]
        for choice in response["choices"]
        if "tool_calls" in choice["message"]
    ]


_WITH_CALLS = [
    r for r in streams("chat") if r.use.startswith("strict") and b'"tool_calls":[{' in r.body
]


@pytest.mark.parametrize("recording", _WITH_CALLS, ids=_name)
def test_calls_are_told_apart_by_whatever_signs_there_are(recording: Recording) -> None:
    whole = assemble(recording.dialect, [recording.body])

    for keys in ({"id"}, {"index"}, set[str]()):
        assert _calls_told_by(recording, keys) == _calls(whole, keys)


@pytest.mark.parametrize("recording", streams("chat"), ids=_name)
def test_what_says_nothing_in_a_delta_changes_nothing(recording: Recording) -> None:
    def change(event: dict[str, Any]) -> dict[str, Any]:
        for delta in _deltas(event):
            for key, nothing in (("role", "assistant"), ("content", None), ("tool_calls", [])):
                delta.setdefault(key, nothing)
        return event

    whole: Any = assemble(recording.dialect, [recording.body])
    roles = [c["message"].get("role") for c in (whole.response or {}).get("choices", ())]
    if roles == ["assistant"] * len(roles) and whole.error is None:
        assert _changed(recording, change) == whole


def _kind(event: dict[str, Any]) -> str:
    return str(event.get("type", ""))


def _output(assembled: Assembled) -> Any:
    return (assembled.response or {}).get("output")


def _without_output(event: dict[str, Any]) -> dict[str, Any]:
    """A terminal event of a server that leaves the items out of it."""
    if _kind(event) in {"response.completed", "response.incomplete", "response.failed"}:
        event["response"].pop("output", None)
    return event


# Of these the id of an item changes from event to event: only the index tells what is what.
_RESPONSES = [r for r in streams("responses") if "item-id-rotates" not in r.meta["features"]]


@pytest.mark.parametrize("recording", _RESPONSES, ids=_name)
def test_items_are_told_apart_by_whatever_signs_there_are(recording: Recording) -> None:
    def without(*keys: str) -> Change:
        def change(event: dict[str, Any]) -> dict[str, Any]:
            return {k: v for k, v in _without_output(event).items() if k not in keys}

        return change

    def unannounced(event: dict[str, Any]) -> dict[str, Any] | None:
        return None if _kind(event) == "response.output_item.added" else _without_output(event)

    items = _output(_changed(recording, _without_output))

    for change in (without("item_id"), without("output_index"), unannounced):
        assert _output(_changed(recording, change)) == items


def _in_turns(recording: Recording, key: str) -> bytes:
    """The stream with the events of different `key` taking turns, each in its own order."""
    before: list[Event] = []
    after: list[Event] = []
    queues: dict[object, list[Event]] = {}
    for event in _events(recording.body):
        value = loads_object(event.data or b"") or {}
        if key in value:
            queues.setdefault(value[key], []).append(event)
        else:
            (after if queues else before).append(event)
    mixed = [queue.pop(0) for queue in queues.values()]
    while any(queues.values()):
        mixed += [queue.pop(0) for queue in queues.values() if queue]
    return _written([*before, *mixed, *after])


@pytest.mark.parametrize("recording", streams("responses"), ids=_name)
def test_items_may_grow_in_turns(recording: Recording) -> None:
    mixed = _in_turns(recording, "output_index")

    whole = assemble(recording.dialect, [recording.body]).response
    assert assemble(recording.dialect, [mixed]).response == whole
    assert _output(assemble(recording.dialect, [_body(mixed, _without_output)])) == _output(
        _changed(recording, _without_output)
    )


def _strict_messages() -> list[Recording]:
    return [r for r in streams("messages") if r.use.startswith("strict")]


@pytest.mark.parametrize("recording", _strict_messages(), ids=_name)
def test_blocks_are_whole_however_a_server_orders_and_ends_them(recording: Recording) -> None:
    whole = assemble(recording.dialect, [recording.body]).response

    def unstopped(event: dict[str, Any]) -> dict[str, Any] | None:
        return None if _kind(event) == "content_block_stop" else event

    def all_at_zero(event: dict[str, Any]) -> dict[str, Any]:
        return {**event, "index": 0} if "index" in event else event

    assert _changed(recording, unstopped).response == whole
    assert assemble(recording.dialect, [_in_turns(recording, "index")]).response == whole
    assert _changed(recording, all_at_zero).response == whole


@pytest.mark.parametrize("recording", _strict_messages(), ids=_name)
def test_prompt_counts_stand_whichever_event_has_them(recording: Recording) -> None:
    counts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    told: dict[str, Any] = {}

    def only_at_the_end(event: dict[str, Any]) -> dict[str, Any]:
        if _kind(event) == "message_start":
            usage = event["message"].get("usage") or {}
            told.update({key: usage[key] for key in counts if key in usage})
            usage |= dict.fromkeys(told, 0)
        elif _kind(event) == "message_delta":
            event["usage"] = told | (event.get("usage") or {})
        return event

    whole: Any = assemble(recording.dialect, [recording.body]).response
    moved: Any = _changed(recording, only_at_the_end).response
    assert moved["usage"] == whole["usage"]
