"""A whole number of so many digits that Python's own reader refuses it means null, everywhere."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.capture.reading import load_line
from nemo_gym.rollouts.lines import join_members, split_members
from nemo_gym.wire.embed import embed
from nemo_gym.wire.json import has_number_too_long, loads
from support.rollouts import (
    FakeAgent,
    FakeAnswer,
    collect,
    files_of,
    lines_of,
    put,
    rows_of,
    text_of,
)

_LIMIT = 4300
_before = st.integers(0, 3 * _LIMIT).map(lambda n: b'"' + b"x" * n + b'"')


@given(_before, st.integers(_LIMIT - 2, 3 * _LIMIT), _before)
def test_a_number_is_found_wherever_it_stands_and_only_when_it_is_too_long(
    before: bytes, digits: int, after: bytes
) -> None:
    number = b"7" * digits
    too_long = digits > _LIMIT

    assert has_number_too_long(b"[%b,%b,%b]" % (before, number, after)) is too_long
    assert has_number_too_long(b'[%b,"%b",%b]' % (before, number, after)) is False


def test_a_number_in_what_is_nested_too_deep_to_read_is_not_found() -> None:
    """Nobody else reads so deep either."""
    depth = 200_000
    body = b"[" * depth + b"7" * (3 * _LIMIT) + b"]" * depth

    assert has_number_too_long(body) is False


@given(st.integers(_LIMIT - 2, _LIMIT + 5))
def test_what_is_kept_of_a_body_is_read_by_everyone(digits: int) -> None:
    body = b'{"a":1.50,"n":%b,"s":"%b"}' % (b"7" * digits, b"7" * 5000)
    kept = embed(body)
    row = join_members(split_members(body))

    assert kept is not None
    assert kept.exact is (digits <= _LIMIT)
    for text in (kept.json, row):
        assert b"1.50" in text or text is kept.json
        assert json.loads(text)["n"] == (int("7" * digits) if digits <= _LIMIT else None)


def test_a_line_of_an_earlier_version_is_read_by_everyone() -> None:
    line = b'{"request":{"n":-%b},"status_code":200}' % (b"7" * 5000)

    assert load_line(line) == loads(line) == {"request": {"n": None}, "status_code": 200}


async def test_a_rollout_whose_row_python_refuses_is_run_again(tmp_path: Path) -> None:
    output = tmp_path / "x.jsonl"
    await collect(output, rows_of(2))
    lines = text_of(output).splitlines()
    put(output, f'{lines[0]}\n{lines[1][:-1]},"big":{"7" * 5000}}}\n')
    files = files_of(output)

    async def with_a_long_number(_: object) -> FakeAnswer:
        return FakeAnswer(200, b'{"reward":1,"big":%b}' % (b"7" * 5000))

    report = await collect(output, rows_of(2), FakeAgent(with_a_long_number), mode="resume")

    assert report.finished == 2
    assert [row.get("big", 0) for row in lines_of(files.output)] == [0, None]
