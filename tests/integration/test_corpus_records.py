"""Recorded calls through tap, stored line and record: nothing is lost on the way."""

import json
from typing import Any

import pytest

from nemo_gym.capture.exchange import exchange_line
from nemo_gym.capture.tap import Verdict
from nemo_gym.records.model_call import ModelCallRecord, build
from support.corpus import Recording, json_bodies, needs_corpus, streams
from support.taps import JSON, SSE, Led

pytestmark = [needs_corpus, pytest.mark.corpus]


def _name(recording: Recording) -> str:
    return recording.name


_REQUEST = b'{"model": "asked-for"}'


def _led(recording: Recording, headers: list[tuple[bytes, bytes]]) -> tuple[Led, list[Verdict]]:
    led = Led(recording.dialect)
    led.tap.request_body(_REQUEST)
    led.start(headers, recording.meta["status_code"] or 200)
    verdicts = led.send_all(recording.as_received())
    return led, [*verdicts, led.send(b"", more=False)]


def _stored(led: Led) -> Any:
    return json.loads(exchange_line(led.end(), None, model_call_id="i", model_ref_name="m"))


def _counts(dialect: str, usage: dict[str, Any]) -> tuple[int | None, int | None]:
    """Prompt and output tokens, by the documented rule of each dialect."""
    if dialect == "chat":
        return usage.get("prompt_tokens"), usage.get("completion_tokens")
    if dialect == "responses":
        return usage.get("input_tokens"), usage.get("output_tokens")
    cached = ("cache_read_input_tokens", "cache_creation_input_tokens")
    extra = sum(usage.get(name) or 0 for name in cached)
    return usage["input_tokens"] + extra, usage["output_tokens"]


def _called(dialect: str, response: dict[str, Any]) -> list[str]:
    """Names of the tools that the client is asked to run."""
    if dialect == "chat":
        messages = [choice.get("message", {}) for choice in response["choices"]]
        calls = [call["function"] for m in messages for call in m.get("tool_calls") or []]
        legacy = [m["function_call"] for m in messages if m.get("function_call")]
        return [call["name"] for call in calls + legacy if call["name"]]
    if dialect == "responses":
        kinds = {"function_call", "custom_tool_call"}
        return [i["name"] for i in response.get("output") or [] if i["type"] in kinds]
    return [b["name"] for b in response["content"] if b["type"] == "tool_use"]


def _assert_agrees(record: ModelCallRecord, dialect: str, whole: dict[str, Any]) -> None:
    usage = whole.get("usage")
    if usage:
        counts = [n if n is not None and n >= 0 else None for n in _counts(dialect, usage)]
        assert [record.tokens_in, record.tokens_out] == counts
    else:  # a server may put it where the SDKs do not look
        assert (record.tokens_in is None) == ("x_groq" not in str(record.response))
    names = [call["name"] for call in record.tool_calls if not str(call["name"]).endswith("_call")]
    assert names == _called(dialect, whole)
    assert all(isinstance(call["arguments"], dict) for call in record.tool_calls)


@pytest.mark.parametrize("recording", json_bodies(), ids=_name)
def test_a_recorded_body_is_stored_as_it_was(recording: Recording) -> None:
    led, verdicts = _led(recording, JSON)
    stored = _stored(led)

    body = json.loads(recording.body)
    assert verdicts[-1] is Verdict.COMMIT
    assert (stored["request"], stored["response"]) == ({"model": "asked-for"}, body)
    if led.end().status == 200 and {"choices", "output", "content"} & set(body):
        _assert_agrees(build(stored, 0), recording.dialect.name, body)


@pytest.mark.parametrize("recording", streams(), ids=_name)
def test_a_recorded_stream_is_stored_whole_and_commits_once(recording: Recording) -> None:
    led, verdicts = _led(recording, SSE)
    stored = _stored(led)

    assert verdicts.count(Verdict.COMMIT) == 1
    assert Verdict.HOLD not in verdicts[: verdicts.index(Verdict.COMMIT) - 1]
    assert recording.body.decode().startswith(stored["response_raw"])
    record = build(stored, 0)
    assert record.latency_ttft_ms is not None
    if recording.use.startswith(("strict", "terminal")):
        whole = dict(recording.expected)
        if recording.items and not whole.get("output"):
            whole["output"] = recording.items
        _assert_agrees(record, recording.dialect.name, whole)


@pytest.mark.parametrize("recording", streams(), ids=_name)
def test_the_category_of_a_recorded_stream_is_told_by_its_end(recording: Recording) -> None:
    stored = _stored(_led(recording, SSE)[0])

    features = recording.meta["features"]
    if recording.meta["status_code"] >= 400 or "mid-stream-error" in features:
        expected = "upstream_error"
    elif "terminal:incomplete" in features:
        expected = "incomplete"
    elif "terminal:failed" in features:
        expected = "upstream_error"
    elif recording.dialect.name == "chat" and "done-sentinel" not in features:
        expected = "stream_truncated"
    else:
        expected = None
    assert stored["error_category"] == expected
