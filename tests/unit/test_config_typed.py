"""Lenient where YAML and the environment are, strict where a slip would pass unseen."""

from collections.abc import Mapping
from typing import Annotated, Literal

import pytest

from nemo_gym.capture.tap import DEFAULT_BODY_LIMIT
from nemo_gym.config.check_root import known_root_keys
from nemo_gym.config.schema import RootSettings, root_settings
from nemo_gym.config.typed import Bounds, Pattern, WrongType, coerce, describe

GOOD = [
    (True, bool, True),
    ("TRUE", bool, True),
    ("false", bool, False),
    (3, int, 3),
    ("8000", int, 8000),
    (3.0, int, 3),
    (3, float, 3.0),
    ("1e3", float, 1000.0),
    ("text", str, "text"),
    (None, str | None, None),
    ("x", str | list[str], "x"),
    (["x"], str | list[str], ["x"]),
    ("grpc", Literal["http", "grpc"], "grpc"),
    (None, Literal["a", None], None),
    ("1", Literal[1, 2], "1"),
    (False, Literal[False], False),
    (["1", 2], list[int], [1, 2]),
    ("yes", Annotated[str, Pattern("^y", "a text with y")], "yes"),
    (1, Annotated[int, Bounds(ge=1)], 1),
    ("0.5", Annotated[float, Bounds(gt=0, lt=1)], 0.5),
    (None, Annotated[int | None, Bounds(ge=1)], None),
    (True, Annotated[bool | int, Bounds(ge=2)], True),
    ({"a": 1}, Mapping, {"a": 1}),
    ([1], tuple, [1]),
    (object, object, object),
]
BAD = [
    (1, bool, "true or false"),
    ("yes", bool, "true or false"),
    (True, int, "a whole number"),
    (1.5, int, "a whole number"),
    ("x", int, "a whole number"),
    (True, float, "a number"),
    ("x", float, "a number"),
    (1, str, "text"),
    (None, str, "text"),
    (1, str | None, "text or null"),
    ("smtp", Literal["http", "grpc"], "one of 'http', 'grpc'"),
    (1, Literal[True], "one of True"),
    ("None", Literal["a", None], "one of 'a', None"),
    ("x", Annotated[str, Pattern("^y", "a text with y")], "a text with y"),
    (["x"], list[Annotated[str, Pattern("^y", "a y")]], "a list (a y each)"),
    (1, Annotated[str, Pattern("^y", "a text with y")], "a text with y"),
    ("x", list, "a list"),
    (["x", "1"], list[int], "a list (a whole number each)"),
    (0, Annotated[int, Bounds(ge=1)], "a whole number from 1 up"),
    ("0", Annotated[int, Bounds(ge=1)], "a whole number from 1 up"),
    (0, Annotated[float, Bounds(gt=0)], "a number above 0"),
    (float("nan"), Annotated[float, Bounds(gt=0)], "a number above 0"),
    (2, Annotated[float, Bounds(ge=0, le=1)], "a number from 0 to 1"),
    (3, Annotated[int, Bounds(gt=0, lt=3)], "a whole number above 0 and below 3"),
    (9, Annotated[int, Bounds(le=8)], "a whole number up to 8"),
    ("x", Annotated[int, Bounds(ge=1)], "a whole number from 1 up"),
    (-1, Annotated[int | None, Bounds(ge=0, le=9)], "a whole number from 0 to 9 or null"),
    ([], dict, "a section of keys"),
]


@pytest.mark.parametrize(("value", "expected", "result"), GOOD)
def test_a_fitting_value_becomes_its_type(value: object, expected: object, result: object) -> None:
    found = coerce(value, expected)

    assert found == result
    assert type(found) is type(result)


@pytest.mark.parametrize(("value", "expected", "words"), BAD)
def test_a_value_that_does_not_fit_says_what_would(
    value: object, expected: object, words: str
) -> None:
    with pytest.raises(WrongType):
        coerce(value, expected)
    assert describe(expected) == words


def test_settings_that_nobody_gave_have_their_defaults() -> None:
    assert root_settings({}) == RootSettings()
    assert root_settings({"telemetry": None, "a_server": {}}) == RootSettings()


def test_bodies_are_kept_up_to_256_mib_unless_told_otherwise() -> None:
    assert RootSettings().model_call_capture_max_body_bytes == 256 * 1024 * 1024
    assert RootSettings().model_call_capture_max_body_bytes == DEFAULT_BODY_LIMIT


def test_every_setting_of_the_contract_is_known() -> None:
    assert {
        "observability_enabled",
        "model_call_capture_dir",
        "model_call_capture_max_body_bytes",
        "head_server.host",
        "head_server.port",
        "telemetry.metrics.enabled",
        "telemetry.event_loop_task_count",
        "responses_create_params",
        "policy_base_url",
        "policy_api_key",
        "policy_model_name",
    } <= known_root_keys()


def test_no_repr_of_the_settings_shows_the_key() -> None:
    assert "sk-planted" not in repr(root_settings({"policy_api_key": "sk-planted"}))
