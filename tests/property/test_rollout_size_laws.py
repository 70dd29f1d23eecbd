"""Sizes of a rollout: what reads only types says the same as what reads everything."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nemo_gym.rollouts.lines import Members, split_members
from nemo_gym.rollouts.sizes import sizes_of

kinds = st.sampled_from(["message", "reasoning", "function_call", "function_call_output", "", "é"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**70) | st.text(max_size=3) | kinds,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=5,
)
items = st.fixed_dictionaries({}, optional={"type": kinds | anything, "content": anything})
lists = st.lists(items, max_size=8) | st.lists(items | anything, max_size=5) | anything


def holding(key: str) -> st.SearchStrategy[Any]:
    """Return objects with lists under `key`, some without it, and what is no object."""
    whole = st.fixed_dictionaries({key: lists}, optional={"other": anything})
    return whole | whole | st.just({}) | anything


rows = st.fixed_dictionaries(
    {"responses_create_params": holding("input"), "response": holding("output")}
)


@given(rows, st.booleans())
@example({}, True)
@example({"responses_create_params": {"input": {}}, "response": {"output": {"type": "a"}}}, True)
@example({"responses_create_params": {"input": {"a": 1, "b": 2}}}, True)
@example({"responses_create_params": {"input": None}, "response": {"output": "text"}}, True)
def test_sizes_are_those_of_the_plain_values(row: dict[str, Any], ascii_only: bool) -> None:
    assert sizes_of(members(row, ascii_only=ascii_only)) == sizes_of_values(row)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (rb'{"response":{"output":[{"type":"a_call","x":"\ud83d"}]}}', (0, 1, 1, 1)),
        (rb'{"response":{"output":[{"type":"\ud83d_call"}]}}', (0, 1, 1, 1)),
        (b'{"response":{"output":[{"type":1,"type":"a_call"}],"output":[{}]}}', (0, 1, 1, 0)),
        (b'{"response":{"output":[' + b"[" * 900 + b"]" * 900 + b"]}}", (0, 1, 1, 0)),
    ],
    ids=["half-a-character", "half-a-character-of-a-type", "given-twice", "deep"],
)
def test_what_is_odd_is_read_all_the_same(text: bytes, sizes: tuple[int, ...]) -> None:
    assert sizes_of(split_members(text)) == sizes


def test_what_is_nested_too_deeply_counts_as_nothing() -> None:
    deep = b'{"output":[%b]}' % (b"[" * 100_000 + b"]" * 100_000)

    assert sizes_of({"response": deep}) == (0, 0, 0, 0)


def members(row: dict[str, Any], *, ascii_only: bool) -> Members:
    return split_members(json.dumps(row, ensure_ascii=ascii_only).encode())


def sizes_of_values(row: dict[str, Any]) -> tuple[int, int, int, int]:
    """Return the sizes as the documentation has them, from plain values."""
    given_, output = (
        as_list(held.get(key, [])) if isinstance(held, dict) else []
        for held, key in (
            (row.get("responses_create_params"), "input"),
            (row.get("response"), "output"),
        )
    )
    kinds_ = [item.get("type") if isinstance(item, dict) else None for item in output]
    texts = [kind if isinstance(kind, str) else "" for kind in kinds_]
    results = [text.endswith("_call_output") for text in texts]
    turns = sum(
        not is_result and (index == 0 or results[index - 1])
        for index, is_result in enumerate(results)
    )
    return len(given_), len(output), turns, sum(text.endswith("_call") for text in texts)


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
