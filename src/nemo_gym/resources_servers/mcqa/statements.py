r"""Text in, the places where it states an answer out: `\boxed{B}`, "Answer: B", "B is correct".

A statement carries what was named, as letters, and where it stands. Whether the letters are options
is judged by `extract`. Quotes, dashes
and colons are plain ones (`tidied`). Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["How", "Statement", "answer_lines", "boxed", "tidied", "unwrapped", "verdicts"]

How = Literal["boxed", "answer_line", "verdict", "letter", "option_text", "regex"]
"""Which form an answer had."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One place of a text that names an answer."""

    at: int
    """Offset in the text."""
    how: How
    letters: frozenset[str]
    """Upper case. Empty: words that name no letter; several: more than one answer at once."""
    words: str
    """What follows the letter, or the whole where there is no letter."""


_PLAIN = str.maketrans(
    "\u2018\u2019\u201c\u201d\u2010\u2011\u2012\u2013\u2014\u2212\uff1a\uff08\uff09\u3002\u00a0",
    "''\"\"------:(). ",
)
_BOX = re.compile(r"\\(?:boxed|fbox)(?:\s*\{|\s+(?=\w))")
_LATEX = re.compile(
    r"\\(?:text\w{0,2}|math\w{2,3}|operatorname|mbox|emph|underline)\s*\{([^{}]*)\}"
)
_DECORATION = " \t\r\n*_`\"'$()[]{}\\.:;,!<>~#"
_DEEPEST = 8

_NAMED = re.compile(
    r"""(?:(?:option|choice|letter|answer)\s+)?
        (?P<open>[*_`"'$(\[{\\\s]*)
        (?P<letter>[A-Za-z])
        (?P<close>[*_`"'$)\]}\\]*)
        (?P<then>(?:\s*[.):,;]|\s+[-=]|)(?:\*\*|__)?)
        (?P<words>.*)""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_ANSWER = re.compile(
    r"""\b(?:answer|choice|option)\b[*_\s]{0,9}
        (?:\s(?:is|was|would\s+be|must\s+be|should\s+be)\b[*_\s]{0,9}:?|[:=]|\s-\s|[*_#]{0,9}\n)
        [*_\s]{0,9}(?:(?:the|my)\s+)?(?:(?:final|correct|best|right)\s+)?
        (?:(?:option|choice|letter|answer)(?:\s*:|\s+is\b|\b)\s*)?""",
    re.VERBOSE | re.IGNORECASE,
)
_VERDICT = re.compile(
    r"""(?<![\w'-])(?:(?:option|choice)\s+[*_`(]{0,4}(?P<named>[A-Z])|[*_`(]{0,4}(?P<bare>[A-Z]))[*_`)]{0,4}
        \s+(?:is|must\s+be|is\s+therefore|is\s+thus)\s+
        (?:correct\b|right\b|the\s+(?:correct|right|best)\s+(?:answer|option|choice|one)\b)""",
    re.VERBOSE,
)
_MORE = re.compile(
    r"""\s*(?:,\s*(?:and|or)?|/|&|\band\b|\bor\b)\s*
        (?:(?:option|choice)\s+)?[*_`"'$(\[]*(?P<letter>[A-Za-z])[*_`"'$)\]]*
        (?=\s*(?:$|[.,;:!/&\n]|and\b|or\b|are\b))""",
    re.VERBOSE | re.IGNORECASE,
)
# After one of these, `A` cannot be an article nor `I` the pronoun.
_NOT_AFTER_ARTICLE = re.compile(
    r"(?:because|since|as|which|that|for|due|with|if|when|so|and|or|but|from|by)\b(?!-)",
    re.IGNORECASE,
)
_WITHIN_WORDS = ("-", "_", "%", "°", "+", "=", "^")
_WORD_LETTERS = frozenset("AI")
# A model that repeats itself must not cost a scan of the whole text at every repetition.
_LONGEST = 400


def tidied(text: str) -> str:
    """Return `text` with plain quotes, dashes and colons, of the same length."""
    return text.translate(_PLAIN)


def boxed(text: str) -> Iterator[Statement]:
    r"""Find `\boxed{…}` with balanced braces, and `\boxed B`."""
    for found in _BOX.finditer(text):
        braced = found.group().endswith("{")
        content = _balanced(text, found.end()) if braced else text[found.end()]
        if content is not None:
            yield _named(found.start(), "boxed", content)


def answer_lines(text: str) -> Iterator[Statement]:
    """Find "Answer: …", "the answer is …" and headings named Answer."""
    for found in _ANSWER.finditer(text):
        line = text[found.end() : found.end() + _LONGEST].partition("\n")[0]
        if line:
            yield _named(found.start(), "answer_line", line)


def verdicts(text: str) -> Iterator[Statement]:
    """Find "B is correct" and "option B is the right answer"."""
    for found in _VERDICT.finditer(text):
        letter = found["named"] or found["bare"]
        yield Statement(found.start(), "verdict", frozenset(letter), "")


def unwrapped(text: str) -> str:
    r"""Return `text` without LaTeX text commands, and without decoration around it."""
    return _without_commands(text).strip(_DECORATION)


def _without_commands(text: str) -> str:
    for _ in range(_DEEPEST):
        plain = _LATEX.sub(r"\1", text)
        if plain == text:
            break
        text = plain
    return text


def _balanced(text: str, start: int) -> str | None:
    """Return what stands before the brace that closes the one before `start`; None without one."""
    depth = 1
    for at in range(start, min(len(text), start + _LONGEST)):
        if text[at] == "{":
            depth += 1
        elif text[at] == "}":
            depth -= 1
            if depth == 0:
                return text[start:at]
    return None


def _named(at: int, how: How, content: str) -> Statement:
    """Read the letter or letters at the beginning of `content`."""
    plain = _without_commands(content)
    found = _NAMED.match(plain)
    if found is None or _goes_on_as_word(found):
        return Statement(at, how, frozenset(), unwrapped(plain))
    letters = {found["letter"].upper()}
    rest = plain[found.end("close") :]
    more = _MORE.match(rest)
    while more is not None:
        letters.add(more["letter"].upper())
        rest = rest[more.end() :]
        more = _MORE.match(rest)
    words = unwrapped(found["words"]) if len(letters) == 1 else ""
    return Statement(at, how, frozenset(letters), words)


def _goes_on_as_word(found: re.Match[str]) -> bool:
    """Return whether the letter only begins a word, or is the article or the pronoun."""
    words, closed = found["words"], bool(found["close"] or found["then"].strip())
    apostrophe = found["close"][-1:] == "'" and words[:1].isalpha()
    if apostrophe or (not closed and (words[:1].isalnum() or words[:1] in _WITHIN_WORDS)):
        return True
    if closed or found["letter"].upper() not in _WORD_LETTERS:
        return False
    following = words.lstrip(" \t")
    return following[:1].isalnum() and _NOT_AFTER_ARTICLE.match(following) is None
