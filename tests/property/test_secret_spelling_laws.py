"""A secret is found whichever way each of its characters is escaped, in time that stays linear."""

import html
import json
import re
from collections.abc import Callable
from time import perf_counter
from urllib.parse import quote, unquote, unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.capture.hiding import Hider
from nemo_gym.config.secrets import Redactor
from nemo_gym.config.spellings import SecretFinder

KEY = "AbC/def+ghi/jkl=="
Spell = Callable[[str], str]


def _in_json(character: str) -> str:
    return "".join(f"\\u{unit:04x}" for unit in _units(character))


def _units(text: str) -> list[int]:
    data = text.encode("utf-16-be")
    return [int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2)]


def _backslashed(character: str) -> str:
    return f"\\{character}" if character in '/"\\' else character


def _named(character: str) -> str:
    names = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos", "+": "plus", "/": "sol"}
    return f"&{names[character]};" if character in names else character


SPELLINGS: dict[str, Spell] = {
    "raw": lambda c: c,
    "backslash": _backslashed,
    "backslash-twice": lambda c: json.dumps(_backslashed(c), ensure_ascii=False)[1:-1],
    "json-lower": _in_json,
    "json-upper": lambda c: re.sub("[a-f]", lambda m: m[0].upper(), _in_json(c)),
    "json-in-json": lambda c: _in_json(c).replace("\\", "\\\\"),
    "percent-upper": lambda c: "".join(f"%{byte:02X}" for byte in c.encode()),
    "percent-lower": lambda c: "".join(f"%{byte:02x}" for byte in c.encode()),
    "percent-twice": lambda c: "".join(f"%25{byte:02x}" for byte in c.encode()),
    "form": lambda c: c.replace(" ", "+"),
    "html-decimal": lambda c: f"&#{ord(c)};",
    "html-zeros": lambda c: f"&#000{ord(c)};",
    "html-lower": lambda c: f"&#x{ord(c):x};",
    "html-upper": lambda c: f"&#X0{ord(c):X};",
    "html-name": _named,
    "html-twice": lambda c: f"&amp;#{ord(c)};",
    "html-in-json": lambda c: f"\\u0026#{ord(c)};",
}
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


def _without_json(text: str) -> str:
    undone = _ESCAPED.sub(lambda m: chr(int(m[1], 16)) if m[1] else m[2], text)
    return undone.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


UNDONE: dict[str, Spell] = {
    "nothing": lambda t: t,
    "json": _without_json,
    "json-in-json": lambda t: _without_json(_without_json(t)),
    "url": unquote,
    "form": unquote_plus,
    "html": html.unescape,
    "html-in-json": lambda t: html.unescape(_without_json(t)),
    "all": lambda t: html.unescape(unquote(_without_json(_without_json(t)))),
}
# Often what escapes begin and end with, so that secrets hold what looks like an escape.
_characters = st.sampled_from("/+=&<>\"'\\%ux0257;#amp bB") | st.characters(
    codec="utf-8", exclude_characters="*"
)
_secrets = st.text(_characters, min_size=6, max_size=16)


@st.composite
def _spelled(draw: st.DrawFn) -> tuple[str, str]:
    secret = draw(_secrets)
    names = sorted(SPELLINGS)
    return secret, "".join(SPELLINGS[draw(st.sampled_from(names))](c) for c in secret)


@given(_spelled(), st.text(_characters, max_size=6), st.text(_characters, max_size=6))
def test_no_undoing_of_escapes_brings_a_hidden_secret_back(
    spelled: tuple[str, str], before: str, after: str
) -> None:
    secret, text = spelled
    hidden = Hider([secret]).text(f"{before}{text}{after}")

    assert "***" in hidden
    assert [name for name, undo in UNDONE.items() if secret in undo(hidden)] == []


@given(_spelled())
def test_nothing_but_the_secret_goes(spelled: tuple[str, str]) -> None:
    secret, text = spelled

    assert Hider([secret]).data(f"[{text}]".encode()) == b"[***]"
    assert Hider([secret]).is_in(f"[{text}]".encode())
    assert Redactor([secret]).redact(f"[{text}]") == "[***]"


@given(_spelled(), st.data())
def test_a_cut_text_never_ends_within_a_spelled_secret(
    spelled: tuple[str, str], data: st.DataObject
) -> None:
    secret, _ = spelled
    spell = SPELLINGS[data.draw(st.sampled_from(sorted(SPELLINGS)))]
    shown = data.draw(st.integers(4, len(secret) - 1))
    begun = "".join(map(spell, secret[:shown]))
    rest = "".join(map(spell, secret[shown:])).encode()
    cut = rest[: data.draw(st.integers(0, len(spell(secret[shown]).encode()) - 1))]

    assert Hider([secret]).beginning(f"[{begun}".encode() + cut) == b"["


@pytest.mark.parametrize(
    "text",
    [
        r"AbC\/def+ghi\/jkl==",
        r"AbC/def\u002Bghi/jkl\u003d\u003D",
        r"AbC\\/def\\u002bghi\\\/jkl==",
        "AbC%2fdef%2bghi%3d%3d".replace("ghi", "ghi/jkl"),
        "AbC%252Fdef+ghi%2Fjkl%3D=",
        "AbC/def&#43;ghi&#x2f;jkl&#x3D;&#061;",
        "AbC&sol;def&plus;ghi/jkl&equals;=",
        r"AbC/def\u0026#43;ghi/jkl==",
        "AbC/def&amp;#43;ghi/jkl==",
    ],
)
def test_what_known_writers_make_of_a_key_is_hidden(text: str) -> None:
    assert Hider([KEY]).text(f"bad key {text}.") == "bad key ***."
    assert Redactor([KEY]).redact(f"bad key {text}.") == "bad key ***."


def test_json_stays_json_where_its_escapes_begin_a_secret() -> None:
    sent = rb'{"error":"\u0041bC\/def\u002Bghi\/jkl== and \"\/AbC/def+ghi/jkl==\\"}'

    assert json.loads(Hider([KEY]).data(sent)) == {"error": '*** and "/***\\'}


def test_json_stays_json_where_a_secret_begins_within_an_escape() -> None:
    hidden = Hider(["nbc-secret"]).data(rb'{"error":"bad key:\nbc-secret"}')

    assert json.loads(hidden) == {"error": "bad key:***"}


def test_a_backslash_that_escapes_nothing_of_a_secret_stays() -> None:
    assert Hider([KEY]).text(rf"C:\{KEY}") == r"C:\***"


def test_secrets_that_overlap_are_hidden_whole() -> None:
    finder = SecretFinder(["abcdefg", "efghijk", "Bearer abcdefg"])

    assert finder.hidden("Bearer abcdefghijk & Bearer%20abcdefg", "***") == "*** & ***"
    assert finder.hidden("Bearer+abcdefg", "***") == "***"


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        ("%25" * 40, "%25" * 1000),
        ("%" * 40, "%25" * 1000),
        ("&amp;" * 40, "&amp;" * 1000),
        ("\\" * 150, "\\" * 600),
        ("\\u005c" * 40, "\\u005c" * 300),
        ("\\a" * 40, "\\\\\\\\a" * 300),
        ("u0075" * 40, "\\u0075" * 500),
        ("a" * 40, "\\" * 20000),
        ("a" * 40, "a" * 5000 + "%"),
        ("+;" * 40, "&#43;;" * 500),
    ],
)  # fmt: skip
def test_no_text_takes_long(secret: str, text: str) -> None:
    began = perf_counter()
    SecretFinder([f"{secret}!"]).hidden(text, "***")

    assert perf_counter() - began < 5


@given(_secrets)
def test_what_one_writer_escapes_is_found_whole(secret: str) -> None:
    for text in (quote(secret, safe=""), json.dumps(secret)[1:-1], repr(secret)[1:-1]):
        assert Hider([secret]).text(f"[{text}]") == "[***]"


@pytest.mark.parametrize("text", ["", "no AbC", "AbC/d, %2", "AbC/d AbC", "AbC/d\\u00 "])
def test_a_cut_text_without_the_start_of_a_secret_stays(text: str) -> None:
    assert SecretFinder([KEY]).start_at_end(text) == len(text)


@pytest.mark.parametrize("text", ["key\udc81\\n1", "key%81%0A1", "key%3F%0a1", r"key\\udc81\\n1"])
def test_bytes_and_line_ends_in_a_secret_are_found(text: str) -> None:
    assert Redactor(["key\udc81\n1"]).redact(f"[{text}]") == "[***]"


def test_without_secrets_nothing_is_looked_for() -> None:
    finder = SecretFinder([""])

    assert (finder.hidden("a%", "***"), finder.is_in("a%"), finder.start_at_end("a%")) == (
        "a%", False, 2,
    )  # fmt: skip
