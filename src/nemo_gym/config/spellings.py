r"""Where secrets are in a text, whichever way each of their characters is spelled. Pure.

Texts of others repeat a secret as their own writers escape it: PHP writes `\/`, .NET `\u002B`, a
form `%2f`, a page `&#43;`, JSON within JSON `\\u002B`; and one text may mix them all.

::

    SecretFinder(["AbC/def"]).hidden(r"bad key AbC\/d%65f", "***")  # bad key ***
"""

import re
from collections.abc import Generator, Iterable
from functools import lru_cache
from html.entities import html5
from typing import NamedTuple

__all__ = ["SecretFinder", "without"]

# So few characters of a secret (`sk-`) may as well be the end of a word.
_TELLS_NOTHING = 3
_SHORT_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\v": "v", "\a": "a"}
# A backslash before these spells none of them, yet goes with them: a secret may begin in the middle
# of `\n`, and what remains of that without its `n` is no JSON.
_LETTERS_OF_ESCAPES = frozenset("bfnrtu")
# Each level of JSON in JSON doubles them. The bound keeps a long run of them linear.
_BACKSLASHES = r"\\\\{0,15}+"
_AMPERSAND = rf"(?:&|{_BACKSLASHES}u0026)(?:amp;){{0,2}}"
# The longest has three times `amp;`, or is half of a surrogate pair.
_CUT_ESCAPE = re.compile(
    r"\\+(?:[uU][0-9a-fA-F]{0,7}(?:\\+(?:u[0-9a-fA-F]{0,3})?)?|x[0-9a-fA-F]?)?"
    r"|(?:\\*%[0-9a-fA-F]{0,6})+|\\*(?:&|\\u0026)(?:amp;){0,2}[#0-9a-zA-Z]{0,32}"
    r"|[\udc80-\udcff]{1,3}"
)


class _Character(NamedTuple):
    """How one character of a secret may be spelled."""

    source: str
    """Any of its spellings, as a regular expression."""
    spellings: tuple[re.Pattern[str], ...]
    """Kinds of them, apart: `re` tells of one way only in which an expression fits."""


class _Secret(NamedTuple):
    text: str
    head: re.Pattern[str]
    """Its first characters, in any spelling."""


class SecretFinder:
    """Finds `secrets` in texts: as they are, and with any of their characters escaped.

    Known escapes: those of JSON and of Python's `repr` (also in JSON within JSON), of URLs (also
    twice, and `+` for a space), and of HTML.
    """

    __slots__ = ("_compiled", "_secrets")

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets: list[str] = sorted({secret for secret in secrets if secret})
        self._compiled: list[_Secret] | None = None

    def hidden(self, text: str, mark: str) -> str:
        """Return the text with `mark` in the place of every secret."""
        return without(text, self._spans(text), mark)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return where secrets are: start and end of each, which may overlap."""
        return list(self._spans(text))

    def is_in(self, text: str) -> bool:
        """Say whether any secret is in the text."""
        return next(self._spans(text), None) is not None

    def start_at_end(self, text: str) -> int:
        """Return where the end of a cut text begins that may be the start of a secret.

        The length of the text, where it has no such end.
        """
        found = (_start_at_end(text, secret) for secret in self._ready())
        return min(found, default=len(text))

    def _spans(self, text: str) -> Generator[tuple[int, int]]:
        if not self._secrets:
            return
        # Compiling and looking for spellings costs hundreds of times as much as this.
        if not ("\\" in text or "%" in text or "&" in text):
            for secret in self._secrets:
                yield from _plain_spans(text, secret)
            return
        for compiled in self._ready():
            yield from _spelled_spans(text, compiled)

    def _ready(self) -> list[_Secret]:
        if self._compiled is None:
            self._compiled = [_compiled(secret) for secret in self._secrets]
        return self._compiled


def without(text: str, spans: Iterable[tuple[int, int]], mark: str) -> str:
    """Return the text with `mark` in the place of each span; those that overlap are one."""
    pieces: list[str] = []
    shown_to = 0
    for start, end in sorted(spans):
        if start >= shown_to:
            pieces += (text[shown_to:start], mark)
        shown_to = max(shown_to, end)
    return "".join((*pieces, text[shown_to:])) if pieces else text


@lru_cache(maxsize=256)
def _compiled(secret: str) -> _Secret:
    # Of four characters: however many ways each fits in, they multiply to no more than a constant.
    head = secret[: _TELLS_NOTHING + 1]
    return _Secret(secret, re.compile("".join(_character(c).source for c in head)))


def _plain_spans(text: str, secret: str) -> Generator[tuple[int, int]]:
    if " " in secret:  # a form has `+` for it
        text, secret = text.replace("+", " "), secret.replace("+", " ")
    start = text.find(secret)
    while start >= 0:
        end = start + len(secret)
        yield start, end
        start = text.find(secret, end)


def _spelled_spans(text: str, secret: _Secret) -> Generator[tuple[int, int]]:
    dead = _none_dead(secret)
    found = secret.head.search(text)
    while found is not None:
        start = found.start()
        *_, ends = _readings(text, start, secret.text, dead)
        next_start = start + 1
        if ends:
            next_start = max(ends)
            yield start, next_start
            dead = _none_dead(secret)
        found = secret.head.search(text, next_start)


def _start_at_end(text: str, secret: _Secret) -> int:
    dead = _none_dead(secret)
    found = secret.head.search(text)
    while found is not None:
        readings = enumerate(_readings(text, found.start(), secret.text, dead))
        for known, places in readings:
            begun = _TELLS_NOTHING < known < len(secret.text)
            if begun and any(_is_cut_at(text, place) for place in places):
                return found.start()
        found = secret.head.search(text, found.start() + 1)
    return len(text)


def _is_cut_at(text: str, place: int) -> bool:
    return place == len(text) or _CUT_ESCAPE.fullmatch(text, place) is not None


def _none_dead(secret: _Secret) -> list[set[int]]:
    return [set() for _ in secret.text]


def _readings(text: str, start: int, secret: str, dead: list[set[int]]) -> Generator[set[int]]:
    """Yield where none, one, two … all characters of a secret that begins at `start` may end.

    `%25` is `%`, and is `%25` where a secret has just that. All readings are followed at once, as
    places in the text. `dead` has the places, by the number of characters before them, that were
    tried already: each is tried once for all starts, so the work is at most the length of the text
    times that of the secret, and nothing can grow by backtracking.
    """
    places = {start}
    yield places
    for character, tried in zip(secret, dead, strict=True):
        places = places - tried
        tried.update(places)
        places = _after(text, places, character)
        yield places
        if not places:
            return


def _after(text: str, places: set[int], character: str) -> set[int]:
    spellings = _character(character).spellings
    return {
        found.end()
        for place in places
        for spelling in spellings
        if (found := spelling.match(text, place)) is not None
    }


@lru_cache(maxsize=1024)
def _character(character: str) -> _Character:
    plain = "[ +]" if character == " " else re.escape(character)
    kinds = [plain, _percent(character, 0), _percent(character, 1), _percent(character, 2)]
    kinds.append(_entity(character))
    kinds.append(f"{_BACKSLASHES}{_letters(character)}")
    if character == "\\":
        kinds += (r"\\\\", r"\\\\\\\\")
    elif not character.isalnum() or character in _LETTERS_OF_ESCAPES:
        kinds.append(f"{_BACKSLASHES}{plain}")
    # Alternatives that all begin with a character let `re` skip quickly what begins none.
    return _Character(f"(?:{'|'.join(kinds)})", tuple(map(re.compile, kinds)))


def _percent(character: str, times: int) -> str:
    """Return its bytes as a URL has them, after `times` more rounds of the same."""
    sign = "%" + "25" * times
    # A value of the environment may hold bytes that are no text.
    is_byte = "\udc80" <= character <= "\udcff"
    handlers = ("replace", "surrogateescape") if is_byte else ("replace",)
    return "|".join(
        "".join(sign + _hex(byte, 2) for byte in character.encode("utf-8", errors))
        for errors in handlers
    )


def _letters(character: str) -> str:
    """Return what follows a backslash in JSON and in Python."""
    code = ord(character)
    units = character.encode("utf-16-be", "surrogatepass")
    halves = [_hex(int.from_bytes(units[at : at + 2]), 4) for at in range(0, len(units), 2)]
    spelled = [_BACKSLASHES.join(f"u{half}" for half in halves), f"U{_hex(code, 8)}"]
    if code < 0x100:
        spelled.append(f"x{_hex(code, 2)}")
    if character in _SHORT_ESCAPES:
        spelled.append(_SHORT_ESCAPES[character])
    return f"(?:{'|'.join(spelled)})"


def _entity(character: str) -> str:
    code = ord(character)
    # One that goes on where another ends comes before it.
    names = "".join(f"|{name}" for name in sorted(_entity_names(character), reverse=True))
    number = rf"#0{{0,8}}{code}|#[xX]0{{0,8}}{_hex(code, 1)}"
    # Browsers do without the semicolon of some.
    return rf"{_AMPERSAND}(?:{number}{names});?+"


def _entity_names(character: str) -> set[str]:
    return {name.rstrip(";") for name, meant in html5.items() if meant == character}


def _hex(number: int, digits: int) -> str:
    """Return a pattern of the number in hexadecimal digits of either case."""
    return "".join(
        f"[{digit}{digit.upper()}]" if digit.isalpha() else digit
        for digit in f"{number:0{digits}x}"
    )
