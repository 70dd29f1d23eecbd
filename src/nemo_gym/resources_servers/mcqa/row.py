"""The keys of a task row that say how its answer is judged. Plain dicts in, values out. Pure.

A key may stand at the top of the row or in `verifier_metadata` or `template_metadata`; the first
place that has it counts.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from string import ascii_uppercase

from nemo_gym.errors import InvalidRow
from nemo_gym.resources_servers.mcqa.extract import MODES, Mode

__all__ = ["Judging", "response_text"]

_PLACES = ("verifier_metadata", "template_metadata")


@dataclass(frozen=True, slots=True)
class Judging:
    """How one row is judged."""

    options: Mapping[str, str]
    """Text of each option by its letter."""
    expected: str
    """Letter of the right option."""
    mode: Mode
    pattern: str | None = None
    """Regular expression that finds the answer in place of `mode`."""

    @classmethod
    def of(cls, row: Mapping[str, object], default: Mode) -> "Judging":
        """Read a row; raises `InvalidRow` that names the key."""
        options = _options(_value(row, "options"))
        expected = _value(row, "expected_answer")
        if not isinstance(expected, str) or expected.strip().upper() not in options:
            raise InvalidRow(
                f"expected_answer is {expected!r}, which is no option ({', '.join(options)})",
                mend='give the letter of the right option, like "B"',
            )
        mode = _value(row, "grading_mode") or default
        if mode not in MODES:
            raise InvalidRow(f"grading_mode is {mode!r}", mend=f"use one of {', '.join(MODES)}")
        pattern = _pattern(_value(row, "output_regex"))
        return cls(options, expected.strip().upper(), mode, pattern)


def response_text(response: object) -> str:
    """Return the text of the model's last message that has one; empty when none has."""
    output = response.get("output") if isinstance(response, Mapping) else None
    for item in reversed(output if isinstance(output, list) else []):
        if isinstance(item, Mapping) and item.get("type", "message") == "message":
            text = "".join(_texts(item))
            if item.get("role", "assistant") == "assistant" and text.strip():
                return text
    return ""


def _texts(item: Mapping[str, object]) -> Iterator[str]:
    content = item.get("content")
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else []:
        text = part.get("text") if isinstance(part, Mapping) else None
        if isinstance(text, str):
            yield text


def _value(row: Mapping[str, object], key: str) -> object:
    places = [row, *(row.get(place) for place in _PLACES)]
    return next((p[key] for p in places if isinstance(p, Mapping) and p.get(key) is not None), None)


def _options(given: object) -> dict[str, str]:
    """Read `{"A": text}`, `[{"A": text}, …]` or `[text, …]`."""
    found: dict[str, str] = {}
    if isinstance(given, Mapping):
        found = {str(letter).strip().upper(): str(text) for letter, text in given.items()}
    elif isinstance(given, list) and len(given) <= len(ascii_uppercase):
        for letter, option in zip(ascii_uppercase, given, strict=False):
            own = option if isinstance(option, Mapping) else {letter: option}
            found |= {str(name).strip().upper(): str(text) for name, text in own.items()}
    if len(found) < 2 or any(letter not in ascii_uppercase for letter in found):
        raise InvalidRow(
            f"options is {str(given)[:200]!r}",
            mend='give two options or more by letter, like {"A": "Rome", "B": "Paris"}',
        )
    return found


def _pattern(given: object) -> str | None:
    if given is None:
        return None
    try:
        re.compile(str(given))
    except re.error as problem:
        raise InvalidRow(
            f"output_regex is {given!r}: {problem}", mend="correct the regular expression"
        ) from None
    return str(given)
