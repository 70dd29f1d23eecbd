"""Recorded streams are reassembled to what the official SDKs make of them."""

import re
from typing import Any

import pytest

from nemo_gym.wire.sse import EventParser
from support.corpus import Recording, needs_corpus, streams
from support.reassembly import assemble, bytewise

pytestmark = [needs_corpus, pytest.mark.corpus]


def _name(recording: Recording) -> str:
    return recording.name


_CHAT_MESSAGE = (
    "content",
    "refusal",
    "role",
    "annotations",
    "audio",
    "function_call",
    "tool_calls",
    "reasoning",
    "reasoning_content",
)


def _known(value: Any) -> Any:
    """The value without nulls: SDKs add some and drop others."""
    if isinstance(value, dict):
        return {key: _known(item) for key, item in value.items() if item is not None}
    return [_known(item) for item in value] if isinstance(value, list) else value


def _chat(response: Any, use: str) -> dict[str, Any]:
    """The fields in which the two official SDKs agree, but those that `use` excepts."""
    found = {"usage": response.get("usage")}
    if "except-id" not in use:
        found["id"] = response["id"]
    if "model" not in use:
        found["model"] = response["model"]
    found["choices"] = [
        {
            "index": choice["index"],
            "finish_reason": choice.get("finish_reason"),
            "logprobs": choice.get("logprobs"),
            "message": {
                key: choice["message"].get(key)
                for key in _CHAT_MESSAGE
                if not (key == "role" and "except-role" in use)
            },
        }
        for choice in response["choices"]
    ]
    known: dict[str, Any] = _known(found)
    return known


def _strict(*dialects: str) -> list[Recording]:
    return [r for r in streams(*dialects) if r.use.startswith("strict")]


@pytest.mark.parametrize("recording", streams(), ids=_name)
def test_a_recording_amounts_to_the_same_however_it_is_cut(recording: Recording) -> None:
    whole = assemble(recording.dialect, [recording.body])

    assert assemble(recording.dialect, recording.as_received()) == whole
    assert assemble(recording.dialect, bytewise(recording.body)) == whole


@pytest.mark.parametrize("recording", _strict("chat"), ids=_name)
def test_a_chat_recording_equals_what_the_sdks_make_of_it(recording: Recording) -> None:
    assembled = assemble(recording.dialect, recording.as_received())

    assert assembled.response is not None
    expected = _chat(recording.expected, recording.use)
    assert _chat(assembled.response, recording.use) == expected


@pytest.mark.parametrize("recording", _strict("messages"), ids=_name)
def test_a_messages_recording_equals_what_the_sdks_make_of_it(recording: Recording) -> None:
    assembled = assemble(recording.dialect, recording.as_received())

    assert _known(assembled.response) == _known(recording.expected)
    assert assembled.terminal == "message_stop"


@pytest.mark.parametrize("recording", streams("responses"), ids=_name)
def test_a_responses_recording_equals_its_terminal_response(recording: Recording) -> None:
    expected = dict(recording.expected)
    if not expected.get("output") and recording.items:
        expected["output"] = recording.items

    assembled = assemble(recording.dialect, recording.as_received())

    assert assembled.response == expected
    assert assembled.terminal == recording.meta["expected"]["terminal_event"]


def _growing(item: dict[str, Any]) -> dict[str, Any]:
    """What of an item comes in deltas."""
    content = [p.get("text") or p.get("refusal") for p in item.get("content") or []]
    summary = [part.get("text") for part in item.get("summary") or []]
    return {
        "type": item.get("type"),
        "content": content,
        "summary": summary,
        **{k: item.get(k) for k in ("arguments", "code", "input")},
        "diff": (item.get("operation") or {}).get("diff"),
        "commands": (item.get("action") or {}).get("commands"),
    }


def _without_ends(body: bytes) -> bytes:
    """The stream as it is when it breaks off before anything in it was done."""
    parser = EventParser()
    events = [*parser.feed(body), *parser.finish()]
    found = [e.data for e in events if e.data is not None]
    kept = [data for data in found if b'.done"' not in data and not _ENDS.search(data)]
    return b"".join(b"data: " + data + b"\n\n" for data in kept)


_ENDS = re.compile(rb'"type": ?"(response\.(completed|failed|incomplete)|error)"|^\[DONE\]')
# Servers that send a whole item, or its texts, in one `done` event have nothing to grow.
_IN_DELTAS = {"message", "function_call", "reasoning", "mcp_call", "custom_tool_call"}


def _streamed(item_type: str, body: bytes) -> bool:
    """Whether the server sent the arguments in deltas, and not in one `done` event."""
    return item_type != "function_call" or b"function_call_arguments.delta" in body


@pytest.mark.parametrize("recording", streams("responses"), ids=_name)
def test_items_that_were_never_done_are_what_their_deltas_say(recording: Recording) -> None:
    whole: Any = assemble(recording.dialect, [recording.body]).response

    partial = assemble(recording.dialect, [_without_ends(recording.body)])

    assert partial.terminal is None
    items: Any = (partial.response or {}).get("output")
    assert partial.notes.get("unterminated_items", 0) == len(items)
    for index, item in enumerate(whole.get("output", [])):
        if item["type"] in _IN_DELTAS and _streamed(item["type"], recording.body):
            assert _growing(items[index]) == _growing(item)


def _text_after(recording: Recording, share: float) -> str:
    """All text of the partial response when only `share` of the bytes came."""
    cut = recording.body[: int(len(recording.body) * share)]
    response: Any = assemble(recording.dialect, bytewise(cut)).response or {}
    if recording.dialect.name == "chat":
        texts = [c["message"].get("content") for c in response.get("choices", [])[:1]]
    else:
        texts = [b.get("text") for b in response.get("content", [])]
    return "".join(text for text in texts if isinstance(text, str))


@pytest.mark.parametrize("recording", _strict("chat", "messages"), ids=_name)
def test_what_has_come_of_a_cut_stream_is_the_beginning_of_the_whole(recording: Recording) -> None:
    whole = _text_after(recording, 1.0)

    for share in (0.25, 0.5, 0.75):
        assert whole.startswith(_text_after(recording, share))
