r"""An answer's text and the options in, the option that it chooses out, or none. Pure.

The rule, from the strongest form to the weakest; the first form that is there decides:

1. *Statements*: `\boxed{B}`, "Answer: B", "the answer is B". The last one wins. A letter that is no
   option, or several letters in one statement, is no answer.
2. *Verdicts*: "B is the correct answer". They must agree.
3. *Letters by themselves*: a line that is a letter (`b`, `(B)`, `**B.**`), a line that begins with
   one as a list does (`B) Paris`), `(B)` in a sentence. There must be only one of them.
4. *Text of an option*, only in the mode `letter_or_text`: exactly one option is mentioned.

A letter with the text of a different option behind it ("B. Rome" where B is Paris) contradicts
itself and is no answer. "A" as an article is never read as an option.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from nemo_gym.resources_servers.mcqa.statements import (
    How,
    Statement,
    answer_lines,
    boxed,
    tidied,
    unwrapped,
    verdicts,
)

__all__ = ["MODES", "Extraction", "Mode", "extract", "extract_by_pattern", "final_text"]

Mode = Literal["letter", "boxed", "answer_line", "letter_or_text"]
r"""What counts as an answer.

`letter`: every form with a letter. `boxed`: only `\boxed{}`. `answer_line`: only "Answer: B" and
its kind. `letter_or_text`: also the text of an option.
"""
MODES: tuple[Mode, ...] = get_args(Mode)

Options = Mapping[str, str]
"""Text of each option by its upper-case letter, in order; texts may be empty."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was found in an answer."""

    letter: str | None
    """The option chosen; None for no answer."""
    how: How | None
    """The form that decided, also where it decided for no answer; None when there was no form."""


# The answer stands at the end; a small model may repeat itself for pages before it.
_READ = 20_000
_NOTHING = Extraction(None, None)
_THINKING_ENDS = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_THINKING_BEGINS = re.compile(r"<(?:think|thinking|reasoning)>", re.IGNORECASE)
_DECORATED = r"[ \t>*_`\"'$(\[#-]*"
_ALONE = re.compile(rf"^{_DECORATED}([A-Za-z])[ \t*_`\"'$)\].:;,!]*$", re.MULTILINE)
_LISTED = re.compile(rf"^{_DECORATED}([A-Za-z])[*_`]*(?:\)|\]|\.(?=\s)|:)(.*)$", re.MULTILINE)
_IN_BRACKETS = re.compile(r"(?<![\w)])[(\[]([A-Z])[)\]](?!\w)")


def extract(text: str, options: Options, mode: Mode = "letter") -> Extraction:
    """Return the option that `text`, the final answer of a model, chooses."""
    text, with_text = tidied(text[-_READ:]), mode == "letter_or_text"
    stated = _last(_statements(text, mode), options, with_text=with_text)
    if stated is not None or mode in {"boxed", "answer_line"}:
        return stated or _NOTHING
    judged = [s for s in verdicts(text) if s.letters]
    if judged:
        return _only({letter for s in judged for letter in s.letters}, options, "verdict")
    by_itself = _bare(text, options)
    if by_itself is not None:
        return by_itself
    return _by_text(text, options) if with_text else _NOTHING


def extract_by_pattern(text: str, options: Options, pattern: str) -> Extraction:
    """Return the option that the last match of a regular expression names.

    The first group that took part is read, or the whole match; it is a letter or the text of an
    option.
    Raises `re.error` for a pattern that is none.
    """
    matches = list(re.finditer(pattern, text))
    if not matches:
        return _NOTHING
    groups = [group for group in matches[-1].groups() if group is not None]
    named = unwrapped(groups[0] if groups else matches[-1].group())
    letter = named.upper() if named.upper() in options else _same_text(named, options)
    return Extraction(letter, "regex")


def final_text(text: str) -> str:
    """Return `text` without thinking in tags; empty when the thinking never ended."""
    answer = _THINKING_ENDS.split(text)[-1]
    begun = _THINKING_BEGINS.search(answer)
    return (answer[: begun.start()] if begun else answer).strip()


def _statements(text: str, mode: Mode) -> list[Statement]:
    found = [] if mode == "answer_line" else list(boxed(text))
    if mode != "boxed":
        found += answer_lines(text)
    return sorted(found, key=lambda statement: statement.at)


def _last(
    statements: Iterable[Statement], options: Options, *, with_text: bool
) -> Extraction | None:
    """Return what the last statement that says something chooses; None when none does."""
    decided = None
    for statement in statements:
        if statement.letters:
            decided = _chosen(statement, options)
        else:
            letter = _letter_and_text(statement.words, options)
            if letter is None and with_text:
                letter = _same_text(statement.words, options)
            if letter is not None:
                decided = Extraction(letter, statement.how)
    return decided


def _chosen(statement: Statement, options: Options) -> Extraction:
    chosen = _only(set(statement.letters), options, statement.how)
    if chosen.letter is not None and _contradicts(chosen.letter, statement.words, options):
        return Extraction(None, statement.how)
    return chosen


def _only(letters: set[str], options: Options, how: How) -> Extraction:
    letter = letters.pop() if len(letters) == 1 else None
    return Extraction(letter if letter in options else None, how)


def _bare(text: str, options: Options) -> Extraction | None:
    """Return what letters by themselves choose; None when there are none."""
    alone = {found[1].upper() for found in _ALONE.finditer(text)}
    if alone:
        return _only(alone, options, "letter")
    listed = {found[1].upper(): unwrapped(found[2]) for found in _LISTED.finditer(text)}
    if listed:
        contradicts = any(_contradicts(k, words, options) for k, words in listed.items())
        return Extraction(None, "letter") if contradicts else _only(set(listed), options, "letter")
    bracketed = {found[1] for found in _IN_BRACKETS.finditer(text)}
    return _only(bracketed, options, "letter") if bracketed else None


def _by_text(text: str, options: Options) -> Extraction:
    """Return the option whose text is the last line, or the only one mentioned."""
    lines = [line for line in text.splitlines() if line.strip()]
    same = _same_text(unwrapped(lines[-1]), options) if lines else None
    if same is not None:
        return Extraction(same, "option_text")
    folded = _folded(text)
    spans = {
        letter: [found.span() for found in _mention(words).finditer(folded)]
        for letter, words in options.items()
        if _folded(words)
    }
    mentioned = {
        letter
        for letter, own in spans.items()
        if any(not _inside(span, spans, letter) for span in own)
    }
    return _only(mentioned, options, "option_text") if mentioned else _NOTHING


def _inside(span: tuple[int, int], spans: Mapping[str, list[tuple[int, int]]], letter: str) -> bool:
    """Return whether a mention is only part of a longer option's mention."""
    return any(
        other[0] <= span[0] and span[1] <= other[1] and other != span
        for name, found in spans.items()
        if name != letter
        for other in found
    )


def _mention(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(_folded(words))}(?!\w)")


def _contradicts(letter: str, words: str, options: Options) -> bool:
    named = _same_text(words, options)
    return named is not None and _folded(options[named]) != _folded(options.get(letter, ""))


def _same_text(words: str, options: Options) -> str | None:
    """Return the letter of the one option that reads so; None for none or several."""
    same = [letter for letter, text in options.items() if _folded(text) == _folded(words) != ""]
    return same[0] if len(same) == 1 else None


def _letter_and_text(words: str, options: Options) -> str | None:
    """Return the letter when `words` is a letter and its own option, as in "A Paris"."""
    letter, _, rest = words.partition(" ")
    own = _folded(options.get(letter.upper(), ""))
    return letter.upper() if own and own == _folded(rest) else None


def _folded(text: str) -> str:
    return " ".join(unwrapped(tidied(text)).casefold().split())
