"""Laws of saying a request in words that llama.cpp takes."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nemo_gym.responses_api_models.local_model.accepted import understood

USER = {"role": "user", "content": "hi", "type": "message"}
json_values: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
bodies = st.dictionaries(st.text(max_size=8), json_values, max_size=5)


def said(body: dict[str, Any]) -> Any:
    return json.loads(understood(json.dumps(body).encode()))


@given(st.binary(max_size=200))
def test_what_cannot_be_read_passes_as_it_is(raw: bytes) -> None:
    try:
        json.loads(raw)
    except ValueError:
        assert understood(raw) == raw


@given(bodies)
def test_what_llama_takes_passes_as_the_bytes_it_came_as(body: dict[str, Any]) -> None:
    raw = json.dumps({**body, "input": [USER]}, indent=1).encode()

    assert understood(raw) == raw


@given(bodies)
def test_it_is_said_once(body: dict[str, Any]) -> None:
    raw = json.dumps({**body, "tools": None, "input": [{"role": "user"}]}).encode()

    assert understood(understood(raw)) == understood(raw)


@example({"input": ["no item"]}, ["tools"])
@given(bodies, st.lists(st.sampled_from(["tools", "text", "user"]), unique=True))
def test_only_nulls_are_left_out(body: dict[str, Any], names: list[str]) -> None:
    nulls = dict.fromkeys(names)
    kept = {name: value for name, value in body.items() if name not in nulls}

    assert said({**kept, **nulls}) == kept


@pytest.mark.parametrize(
    ("item", "becomes"),
    [
        ({"role": "assistant"}, [{"type": "message", "role": "assistant"}]),
        ({"role": "user", "content": []}, [{"type": "message", "role": "user", "content": []}]),
        ({"type": "reasoning", "summary": []}, []),
        ({"type": "reasoning", "content": []}, []),
        ({"type": "reasoning", "content": None}, []),
        ({"type": "reasoning", "content": [1]}, [{"type": "reasoning", "content": [1]}]),
        ({"type": "function_call", "call_id": "c"}, [{"type": "function_call", "call_id": "c"}]),
        ({"unknown": 1}, [{"unknown": 1}]),
    ],
)
def test_an_item_that_llama_refuses_is_said_otherwise(
    item: dict[str, Any], becomes: list[dict[str, Any]]
) -> None:
    assert said({"input": [USER, item]})["input"] == [USER, *becomes]


@pytest.mark.parametrize("body", [{"input": "hi"}, {"input": ["x"]}, {"input": {}}, {}])
def test_other_inputs_stay(body: dict[str, Any]) -> None:
    assert said(body) == body
