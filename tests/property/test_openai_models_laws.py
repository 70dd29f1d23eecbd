"""The law of the OpenAI models: a body goes through validate and dump unchanged."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from nemo_gym import openai_utils
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)

Json = Any

_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
    | st.sampled_from(["1", "1.0", "true"])
)
_values = _scalars | st.sampled_from([[], {}, [1], {"a": None}, [{"b": 1.0}], {"type": "message"}])
_types = [
    "message",
    "function_call",
    "function_call_output",
    "reasoning",
    "output_text",
    "refusal",
    "summary_text",
    "function",
    "web_search_call",
]


def _item(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """Return items with a few of the fields that matter, right or wrong."""
    fields = {
        "type": st.sampled_from(_types),
        "role": st.sampled_from(["user", "assistant", "x"]),
        "content": st.lists(inner, max_size=2) | st.text(max_size=3),
        "summary": st.lists(inner, max_size=2),
        "message": inner,
        **{name: st.text(max_size=3) for name in _TEXTS},
    }
    some = st.lists(st.sampled_from(sorted(fields)), unique=True, max_size=6)
    wrong = st.dictionaries(
        st.sampled_from([*fields, "status", "id", "extra"]), _values, max_size=2
    )
    whole = some.flatmap(lambda names: st.fixed_dictionaries({n: fields[n] for n in names}))
    return st.builds(lambda one, other: {**one, **other}, whole, wrong)


_TEXTS = ["call_id", "name", "arguments", "output", "text", "refusal"]
_items = _item(_item(_values))
_CASES: list[tuple[type[BaseModel], str]] = [
    (NeMoGymResponse, "output"),
    (NeMoGymResponseCreateParamsNonStreaming, "input"),
    (NeMoGymChatCompletion, "choices"),
    (NeMoGymChatCompletionCreateParamsNonStreaming, "messages"),
]


@st.composite
def _bodies(draw: st.DrawFn) -> tuple[type[BaseModel], dict[str, Json]]:
    model, required = draw(st.sampled_from(_CASES))
    item_lists = st.lists(_items, max_size=3)
    names = [name for name in model.model_fields if name != required]
    known = draw(st.dictionaries(st.sampled_from(names), _values | item_lists, max_size=4))
    more = draw(st.dictionaries(st.text("xyz", min_size=1, max_size=3), _values, max_size=2))
    body = {**known, required: draw(item_lists)}
    return model, {**more, **body}


def _text(value: Json) -> str:
    return json.dumps(value, sort_keys=True)


def _unchanged(model: type[BaseModel], body: dict[str, Json]) -> None:
    parsed = model.model_validate(body)

    # As text: 1 and 1.0 and true are equal in Python, and different bodies.
    assert _text(parsed.model_dump()) == _text(body)
    assert _text(parsed.model_dump(mode="json")) == _text(body)


@given(_bodies())
def test_a_body_goes_through_validate_and_dump_unchanged(
    case: tuple[type[BaseModel], dict[str, Json]],
) -> None:
    _unchanged(*case)


@given(_bodies())
def test_a_body_goes_through_as_json_unchanged(
    case: tuple[type[BaseModel], dict[str, Json]],
) -> None:
    model, body = case

    dumped = model.model_validate_json(json.dumps(body)).model_dump_json()

    assert json.loads(dumped) == json.loads(json.dumps(body))


def _recorded() -> list[Any]:
    corpus = os.environ.get("NEMO_GYM_CORPUS")
    if corpus is None:
        skip = pytest.mark.skip(reason="NEMO_GYM_CORPUS names no recorded traffic")
        return [pytest.param(None, None, id="none", marks=skip)]
    kinds = {
        ("responses", "response"): _CASES[0],
        ("responses", "request"): _CASES[1],
        ("chat", "response"): _CASES[2],
        ("chat", "request"): _CASES[3],
    }
    found = []
    for (dialect, side), (model, required) in kinds.items():
        for path in sorted(Path(corpus, dialect).glob(f"*/*.{side}.json")):
            body = _read(path)
            # Error bodies and bodies that are not JSON at all are recorded too.
            if isinstance(body, dict) and required in body:
                found.append(pytest.param(model, body, id=path.stem))
    return found


def _read(path: Path) -> Json:
    try:
        return json.loads(path.read_text())
    except ValueError:
        return None


@pytest.mark.corpus
@pytest.mark.parametrize(("model", "body"), _recorded())
def test_recorded_bodies_go_through_unchanged(
    model: type[BaseModel], body: dict[str, Json]
) -> None:
    _unchanged(model, body)


def test_items_made_in_python_are_complete() -> None:
    message = openai_utils.NeMoGymResponseOutputMessage(
        id="m", content=[openai_utils.NeMoGymResponseOutputText(text="hi", annotations=[])]
    )
    call = openai_utils.NeMoGymResponseFunctionToolCall(call_id="c", name="f", arguments="{}")
    result = openai_utils.NeMoGymFunctionCallOutput(call_id="c", output="1")

    assert message.model_dump() == {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "hi", "annotations": []}],
    }
    assert call.model_dump()["type"] == "function_call"
    assert result.model_dump()["type"] == "function_call_output"


def test_known_items_have_their_class_and_unknown_ones_answer_to_attributes() -> None:
    response = NeMoGymResponse.model_validate(
        {
            "output": [
                {
                    "type": "reasoning",
                    "id": "r",
                    "summary": [{"type": "summary_text", "text": "t"}],
                },
                {"type": "web_search_call", "id": "w", "action": {"query": "q"}},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            ]
        }
    )

    assert [item.type for item in response.output] == [
        "reasoning",
        "web_search_call",
        "function_call",
    ]
    assert isinstance(response.output[1], dict)
    assert isinstance(response.output[2], openai_utils.NeMoGymResponseFunctionToolCall)


def test_output_text_joins_the_texts_of_all_messages() -> None:
    part = {"type": "output_text", "text": "a"}
    message = {"type": "message", "role": "assistant", "content": [part, {"type": "new"}]}

    assert NeMoGymResponse.model_validate({"output": [message, message]}).output_text == "aa"


def test_usage_adds_up_and_unknown_is_not_zero() -> None:
    usage = openai_utils.NeMoGymResponseUsage
    details = openai_utils.NeMoGymResponseOutputTokensDetails
    one = usage(input_tokens=1, output_tokens=2, total_tokens=3)
    other = usage(
        input_tokens=10, total_tokens=None, output_tokens_details=details(reasoning_tokens=4)
    )

    total = openai_utils.accumulate_response_usage(one, other)

    assert total is not None
    assert (total.input_tokens, total.output_tokens, total.total_tokens) == (11, 2, 3)
    assert total.output_tokens_details is not None
    assert total.output_tokens_details.reasoning_tokens == 4
    assert total.input_tokens_details is None
    assert openai_utils.accumulate_response_usage(None, None) is None
    assert openai_utils.accumulate_response_usage(None, one) == one
