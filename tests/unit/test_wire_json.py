"""JSON is read as official clients read it, and written so that every reader takes it."""

import json
from typing import Any

import pytest

from nemo_gym.wire.json import (
    JsonError,
    as_array,
    as_object,
    dumps,
    is_count,
    loads,
    loads_object,
    text_of,
)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a": 1.50}', {"a": 1.5}),
        ('["x"]', ["x"]),
        (b'"\\ud83d"', "\ud83d"),
        (b'"\xff"', "\ufffd"),
        (b"[Infinity]", [float("inf")]),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
    ],
)
def test_json_of_real_servers_is_read(data: bytes | str, value: object) -> None:
    assert loads(data) == value


@pytest.mark.parametrize("data", [b"", b"{", b"nope", b"{} {}", b"[" * 100_000])
def test_what_is_no_json_is_an_error(data: bytes) -> None:
    with pytest.raises(JsonError):
        loads(data)


@pytest.mark.parametrize(("data", "value"), [(b'{"a":1}', {"a": 1}), (b"[1]", None), (b"{", None)])
def test_only_an_object_is_an_object(data: bytes, value: object) -> None:
    assert loads_object(data) == value


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"a": "é\n"}, '{"a":"é\\n"}'),
        (["\ud83d\ude00"], '["😀"]'),
        (["\ud83d"], '["\ufffd"]'),
        ({"\ud83d": [float("nan"), 1.5, None, True]}, '{"\ufffd":[null,1.5,null,true]}'),
        ([2**70], f"[{2**70}]"),
        ([2**70, {1, 2} - {1}], f'[{2**70},"{{2}}"]'),
    ],
)
def test_everything_is_written_as_strict_json_on_one_line(value: Any, written: str) -> None:
    assert dumps(value).decode() == written
    json.loads(dumps(value))


@pytest.mark.parametrize(
    ("value", "counts"),
    [
        (0, True), (3, True), (-1, False), (True, False), (1.0, False), ("1", False),
        (2**63 - 1, True), (2**63, False), (10**400, False),
    ],
)  # fmt: skip
def test_a_count_is_a_whole_number_from_zero_up(value: object, counts: bool) -> None:
    assert is_count(value) is counts


def test_guards_return_the_value_or_none() -> None:
    assert (as_object({}), as_object([])) == ({}, None)
    assert (as_array([]), as_array({})) == ([], None)
    assert (text_of(""), text_of(1)) == ("", None)
