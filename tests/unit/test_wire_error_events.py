"""Which events of a stream are errors, and what is kept of those that only speak of one."""

from typing import Any

import pytest

from nemo_gym.wire.dialects import MESSAGES, RESPONSES
from support.reassembly import assemble, bytewise
from support.sse import block, event, message_end, message_start, typed

_REFUSED = {"message": "the first upstream refused, trying another"}
_ASIDE = typed("gateway.attempt", error=_REFUSED)
_ITEM = {"id": "i", "type": "message", "content": [{"type": "output_text", "text": "whole"}]}
_CREATED = typed("response.created", response={"id": "r", "status": "in_progress", "output": []})
_DONE = typed("response.output_item.done", output_index=0, item=_ITEM)
_COMPLETED = typed("response.completed", response={"id": "r", "status": "completed", "output": []})
_TEXT = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "whole"})


def test_a_message_that_follows_word_of_an_error_on_the_way_is_whole() -> None:
    body = message_start() + _ASIDE + _TEXT + message_end()

    assembled = assemble(MESSAGES, [body])

    response: Any = assembled.response
    assert assemble(MESSAGES, bytewise(body)) == assembled
    assert (assembled.terminal, assembled.error) == ("message_stop", None)
    assert response["content"] == [{"type": "text", "text": "whole"}]
    assert "error" not in response


@pytest.mark.parametrize("before", [_ASIDE, typed("error", code="x", message="boom")])
def test_a_response_that_follows_an_error_is_whole(before: bytes) -> None:
    body = _CREATED + before + _DONE + _COMPLETED

    assembled = assemble(RESPONSES, [body])

    response: Any = assembled.response
    assert assemble(RESPONSES, bytewise(body)) == assembled
    assert assembled.terminal == "response.completed"
    assert response["output"] == [_ITEM]
    assert "error" not in response


@pytest.mark.parametrize(
    ("dialect", "begun"), [(MESSAGES, message_start()), (RESPONSES, _CREATED)], ids=["m", "r"]
)
def test_what_speaks_of_an_error_is_the_error_where_nothing_else_comes(
    dialect: Any, begun: bytes
) -> None:
    last = assemble(dialect, [begun + _ASIDE + typed("ping")])
    followed = assemble(dialect, [begun + _ASIDE + begun])

    assert last.error == _REFUSED
    assert followed.error is None


@pytest.mark.parametrize("dialect", [MESSAGES, RESPONSES], ids=lambda d: d.name)
@pytest.mark.parametrize("said", [None, "", {}, False])
def test_an_error_that_says_nothing_is_none(dialect: Any, said: object) -> None:
    assert assemble(dialect, [typed("gateway.note", error=said)]).error is None
    assert assemble(dialect, [event({"error": said})]).error is None
