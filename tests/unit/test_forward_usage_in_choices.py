"""Metrics count the tokens that the record of the call has, also where a choice carries them."""

import json
from typing import Any

import pytest

from nemo_gym.records.model_call import build
from nemo_gym.servers.forward_usage import TokenCounts, UsageReader, quick_counts
from nemo_gym.wire.dialects import CHAT
from support.reassembly import assemble
from support.sse import DONE, chunk, event

USAGE = {"prompt_tokens": 19, "completion_tokens": 13, "total_tokens": 32}
CHOICE: dict[str, Any] = {"index": 0, "finish_reason": "stop", "usage": USAGE}


def test_usage_in_the_last_choice_of_a_stream_is_counted() -> None:
    body = chunk({"content": "a"}) + event({"choices": [CHOICE | {"delta": {}}]}) + DONE
    reader = UsageReader("chat", stream=True)
    reader.feed(body)

    record = build({"dialect": "chat", "response": assemble(CHAT, [body]).response}, 0)

    assert (record.tokens_in, record.tokens_out) == (19, 13)
    assert reader.counts() == TokenCounts(19, 13, None, None, None)


@pytest.mark.parametrize("parts", [True, False])
def test_usage_in_a_choice_of_a_whole_answer_is_counted(parts: bool) -> None:
    body = json.dumps({"choices": [CHOICE | {"message": {"content": "a"}}]}).encode()

    counts = quick_counts(body, "chat", parts=parts)

    assert counts is not None
    assert counts[:2] == (19, 13)
