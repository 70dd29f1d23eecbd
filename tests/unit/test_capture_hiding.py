"""Credentials are known by their names, and found in a text however they are spelled."""

import json
from base64 import b64encode
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.capture.hiding import Hider, credentials_of

_BASIC = b"Basic " + b64encode(b"someone:pass word")
# Digits and no letter of the mark or of the text around it.
_SECRET = st.text(st.characters(codec="utf-8", exclude_characters="*"), min_size=6, max_size=20)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        (b"authorization", b"Bearer sk-123456", {"Bearer sk-123456", "sk-123456"}),
        (
            b"Authorization",
            _BASIC,
            {_BASIC.decode(), _BASIC.decode()[6:], "someone:pass word", "pass word"},
        ),
        (b"authorization", b"Basic not-base-64!", {"Basic not-base-64!", "not-base-64!"}),
        (b"x-api-key", b"sk-123456", {"sk-123456"}),
        (b"x-goog-api-key", b"sk-123456", {"sk-123456"}),
        (b"x-auth-token", b"sk-123456", {"sk-123456"}),
        (b"cookie", b"a=123456; b=2", {"123456"}),
        (b"helicone-auth", b"Bearer sk-123456", {"Bearer sk-123456", "sk-123456"}),
        (b"x-functions-key", b"sk-123456", {"sk-123456"}),
        (b"x-api-key", b"EMPTY", set()),
        (b"x-author", b"somebody", set()),
        (b"content-type", b"application/json", set()),
        (b"x-keyboard", b"qwertz-layout", set()),
    ],
)  # fmt: skip
def test_credentials_are_known_by_the_names_of_their_headers(
    name: bytes, value: bytes, found: set[str]
) -> None:
    assert credentials_of([(name, value)], b"") == found


def test_credentials_in_a_query_are_known_by_their_parameters() -> None:
    query = b"beta=true&key=abc%2Fdef&api-version=2025-01-01&access_token=t+o-ken&signature="

    assert credentials_of([], query) == {
        "abc%2Fdef", "abc/def", "t+o-ken", "t o-ken",
    }  # fmt: skip


@given(_SECRET, st.text(max_size=5), st.text(max_size=5))
def test_a_secret_is_in_no_text_however_it_is_spelled(secret: str, before: str, after: str) -> None:
    hider = Hider([secret])
    for spelled in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1]):
        text = f"{before} {spelled} {after}"

        assert spelled not in hider.text(text)
        assert spelled.encode() not in hider.data(text.encode())


@given(_SECRET)
def test_json_stays_json_and_its_numbers_stay(secret: str) -> None:
    value = {"code": 1234567, secret: [secret, None, {"a": f"x{secret}"}]}

    hidden = Hider([secret, "1234567"]).value(value)

    assert isinstance(hidden, dict)
    assert hidden["code"] == 1234567
    assert secret not in json.dumps(hidden, ensure_ascii=False)


def test_bytes_that_are_no_text_stay() -> None:
    assert Hider(["planted"]).data(b"\xff planted \xfe") == b"\xff *** \xfe"


def test_without_secrets_everything_stays() -> None:
    hider = Hider(["short"])

    assert (hider.text("short"), hider.data(b"\xff"), hider.is_in(b"short")) == (
        "short", b"\xff", False,
    )  # fmt: skip
