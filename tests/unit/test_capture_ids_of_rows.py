"""The ids of rows are found whatever a strict reader says of them, and those of torn rows never."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nemo_gym.capture.reading import model_call_ids


def _row(call_id: str, payload: str) -> bytes:
    return f'{{"model_call_id":{json.dumps(call_id)},"response":{payload}}}'.encode()


def _nested(levels: int) -> str:
    return '{"a":[' * (levels // 2) + '"]}\\""' + "]}" * (levels // 2)


PAYLOADS = st.integers(0, 3000).map(_nested) | st.sampled_from(
    ['"\\ud800"', "1e400", "9" * 5000, '"}{]["', "null"]
)


def _from_a_deeper_stack(frames: int, data: bytes) -> list[str]:
    return _from_a_deeper_stack(frames - 1, data) if frames else model_call_ids(data)


@given(PAYLOADS, st.integers(0, 300))
@example(_nested(950), 60)
@example(_nested(980), 20)
def test_a_whole_row_has_its_id_however_deep_it_and_the_stack_are(
    payload: str, frames: int
) -> None:
    data = _row("a-1", payload) + b"\n" + _row("a-2", "null") + b"\n"

    assert _from_a_deeper_stack(frames, data) == ["a-1", "a-2"]


@given(PAYLOADS, st.data())
def test_a_row_that_is_torn_has_none(payload: str, data: st.DataObject) -> None:
    row = _row("a-1", payload)
    torn = row[: data.draw(st.integers(0, len(row) - 1))]

    assert model_call_ids(torn) == []


@pytest.mark.parametrize("line", [b"[" * 3000 + b"]" * 3000, b'{"other":1}', b"\0\0", b"[1]"])
def test_what_is_no_row_has_none(line: bytes) -> None:
    assert model_call_ids(line) == []
