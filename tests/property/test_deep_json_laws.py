"""The loops read and write what Python's own coders do, and go on where those give up."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nemo_gym.wire.deep_json import decode_by_loop, loads_by_loop, pieces_by_loop
from nemo_gym.wire.json import JsonError, loads_leniently

_SPACE = st.sampled_from(["", " ", "\n", "\t \r\n"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


def _outcome(read: Any, text: str) -> str:
    """`repr`, because not-a-number equals nothing and true equals one."""
    try:
        return repr(read(text))
    except JsonError:
        return "refused"


@st.composite
def _texts(draw: st.DrawFn) -> str:
    separators = (f"{draw(_SPACE)},{draw(_SPACE)}", f"{draw(_SPACE)}:{draw(_SPACE)}")
    text = json.dumps(draw(_VALUES), separators=separators, ensure_ascii=draw(st.booleans()))
    return f"{draw(_SPACE)}{text}{draw(_SPACE)}"


@given(_texts())
@example('{"a":1,"a":{},"b":[]}')
@example("-Infinity")
@example(f"[{'7' * 5000}, 1e400]")
def test_it_reads_what_the_decoder_reads(text: str) -> None:
    assert _outcome(loads_by_loop, text) == _outcome(loads_leniently, text) != "refused"


@given(_texts(), st.data())
def test_it_refuses_what_the_decoder_refuses(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text)))
    rest = data.draw(st.integers(place, len(text)))
    changed = text[:place] + data.draw(st.text('{}[]",:\\ 1a', max_size=3)) + text[rest:]

    assert _outcome(loads_by_loop, changed) == _outcome(loads_leniently, changed)


@pytest.mark.parametrize(
    "text", ["", " ", "[", "[1,]", "[,1]", '{"a":1,}', '{"a"}', "{1:2}", "[1}", '{"a":1]', "1 2"]
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(JsonError):
        loads_by_loop(text)


@given(_texts(), _texts())
def test_it_says_where_a_value_ends(before: str, after: str) -> None:
    value, end = decode_by_loop(f"[{before}]{after}", 0)

    assert end == len(before) + 2
    assert repr(value) == repr([loads_leniently(before)])


@given(st.integers(1, 5_000), _SPACE)
@example(50_000, "")
def test_depth_is_no_reason_to_give_up(depth: int, space: str) -> None:
    value = loads_by_loop(f'{space}{{"a":{space}[' * depth + "1" + f"]{space}}}" * depth)

    for _ in range(depth):
        assert isinstance(value, dict)
        (value,) = value["a"]
    assert value == 1


@given(_VALUES, st.booleans(), st.booleans())
def test_it_writes_what_the_encoder_writes(value: object, ascii_only: bool, in_order: bool) -> None:
    text = "".join(pieces_by_loop(value, ascii_only=ascii_only, sort_keys=in_order))

    assert text == json.dumps(value, ensure_ascii=ascii_only, sort_keys=in_order)


@given(st.integers(1, 5_000))
def test_depth_is_no_reason_to_stop_writing(depth: int) -> None:
    text = '{"a": [' * depth + "1" + "]}" * depth

    assert "".join(pieces_by_loop(loads_by_loop(text))) == text
