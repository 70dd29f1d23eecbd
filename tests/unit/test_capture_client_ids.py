"""What a client calls its session and its message: which header counts, and what is none."""

import pytest

from nemo_gym.capture.client_ids import client_assistant_message_id, client_session_id

Headers = list[tuple[bytes, bytes]]

KEY = "sk-proj-Planted0123456789"
DIGEST = b'Digest username="me", response="6629fae49393a053"'


@pytest.mark.parametrize(
    ("headers", "session", "message"),
    [
        ([(b"x-claude-code-session-id", b"abc"), (b"session_id", b"no")], "abc", None),
        ([(b"session_id", b"no"), (b"x-claude-code-session-id", b"abc")], "abc", None),
        ([(b"session_id", b"first"), (b"session_id", b"second")], "first", None),
        ([(b"session_id", b" s1 "), (b"x-opencode-request", b"m1")], "s1", "m1"),
        ([(b"x-session-id", b"")], None, None),
        ([(b"x-session-id", b"\xff\x00")], None, None),
        ([(b"x-session-id", b"x" * 200)], "x" * 200, None),
        ([(b"x-session-id", b"x" * 201)], None, None),
        ([(b"session_id", b"x" * 201), (b"x-session-id", b"abc")], "abc", None),
        ([(b"authorization", b"Bearer key"), (b"x-api-key", b"key")], None, None),
    ],
)
def test_the_first_usable_of_the_known_headers_counts(
    headers: Headers, session: str | None, message: str | None
) -> None:
    assert client_session_id(headers, b"", ()) == session
    assert client_assistant_message_id(headers, b"", ()) == message


@pytest.mark.parametrize("sent", [KEY, f"a-{KEY}-b", f"Bearer {KEY}", KEY.replace("-", "%2D")])
@pytest.mark.parametrize("header", [b"session_id", b"x-session-id", b"x-assistant-message-id"])
@pytest.mark.parametrize(
    ("headers", "query", "secrets"),
    [
        ([(b"authorization", f"Bearer {KEY}".encode())], b"", ()),
        ([(b"proxy-authorization", f"Bearer {KEY}".encode())], b"", ()),
        ([(b"x-api-key", KEY.encode())], b"", ()),
        ([(b"api-key", KEY.encode())], b"", ()),
        ([(b"x-goog-api-key", KEY.encode())], b"", ()),
        ([(b"cookie", f"theme=dark; who={KEY}".encode())], b"", ()),
        ([], f"beta=true&key={KEY}".encode(), ()),
        ([], b"", (KEY,)),
    ],
)
def test_an_id_that_holds_a_credential_is_none(
    headers: Headers, query: bytes, secrets: tuple[str, ...], header: bytes, sent: str
) -> None:
    headers = [*headers, (header, sent.encode())]

    assert client_session_id(headers, query, secrets) is None
    assert client_assistant_message_id(headers, query, secrets) is None


@pytest.mark.parametrize("sent", [b"sk-proj-Planted", b"6629fae49393a053", b"me:pass word"])
def test_an_id_that_is_a_piece_of_a_credential_is_none(sent: bytes) -> None:
    headers = [(b"authorization", DIGEST), (b"x-auth", b"Basic bWU6cGFzcyB3b3Jk")]

    assert client_session_id([*headers, (b"session_id", sent)], b"", (KEY,)) is None


def test_a_usable_id_of_another_header_stands_in() -> None:
    headers = [(b"x-api-key", KEY.encode()), (b"session_id", KEY.encode()), (b"x-session-id", b"s")]

    assert client_session_id(headers, b"", ()) == "s"


@pytest.mark.parametrize("key", ["EMPTY", "none", ""])
def test_a_placeholder_of_a_key_takes_no_session_away(key: str) -> None:
    headers = [(b"authorization", f"Bearer {key}".encode()), (b"session_id", b"not-EMPTY-none")]

    assert client_session_id(headers, b"", (key,)) == "not-EMPTY-none"
