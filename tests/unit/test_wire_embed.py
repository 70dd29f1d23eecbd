"""A body stands in a line as it was sent, or rebuilt where strict readers would refuse it."""

import json

import pytest

from nemo_gym.wire.embed import EmbeddedBody, embed


@pytest.mark.parametrize(
    "body",
    [
        b'{"b": 1.50, "a": 1e5, "c": 12345678901234567890123}',
        '{"a": "é\\u00e9\\n"}'.encode(),
        b'{"a":1,"a":2}',
        b' {"a": [ ] } ',
        b"{}",
    ],
)
def test_an_object_stands_as_it_was_sent(body: bytes) -> None:
    assert embed(body) == EmbeddedBody(body, exact=True)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_line_ends_between_tokens_go(end: bytes) -> None:
    body = b"{" + end + b'  "a": 1.50,' + end + b'  "b": "x\\ny"' + end + b"}" + end

    embedded = embed(body)

    assert embedded == EmbeddedBody(b'{  "a": 1.50,  "b": "x\\ny"}', exact=True)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[1]", b"1", b"null", b"text", b"{", b"{}}", b"{} {}", b'{"a":01}', b'{"a":"x\ny"}',
        b'{"a":"\x01"}', b'{"a":}', b"{'a':1}", b"\xef\xbb\xbf[]", b"\x00\xff",
    ],
)  # fmt: skip
def test_what_is_not_one_object_is_none(body: bytes) -> None:
    assert embed(body) is None


@pytest.mark.parametrize(
    ("body", "rebuilt"),
    [
        (b'{"a":"\\ud83d"}', '{"a":"\ufffd"}'),
        (b'{"a":"x\xff"}', '{"a":"x\ufffd"}'),
        (b'{"status":"\xff"}', '{"status":"\ufffd"}'),
        (b'{"a":NaN}', '{"a":null}'),
        (b'\xef\xbb\xbf{"a":1}', '{"a":1}'),
        (b'{"a":[-%b,%b]}' % (b"9" * 4301, b"9" * 4300), '{"a":[null,%s]}' % ("9" * 4300)),
    ],
)
def test_what_strict_readers_refuse_is_rebuilt(body: bytes, rebuilt: str) -> None:
    embedded = embed(body)

    assert embedded is not None
    assert (embedded.json.decode(), embedded.exact) == (rebuilt, False)


@pytest.mark.parametrize("head", [b'{"a":', b'{"b":NaN,"a":'])
def test_a_body_nested_beyond_reason_is_none(head: bytes) -> None:
    assert embed(head + b"[" * 200_000 + b"]" * 200_000 + b"}") is None


def test_a_body_nested_as_deeply_as_can_just_be_read_is_none_or_whole() -> None:
    deep = b"[" * 900 + b"]" * 900
    embedded = embed(b'{"b":NaN,"a":' + deep + b"}")

    # How deep a value can be written depends on the interpreter.
    assert embedded is None or embedded.json == b'{"b":null,"a":' + deep + b"}"


@pytest.mark.parametrize("tail", [b"", b',"x":NaN'], ids=["exact", "rebuilt"])
def test_the_fields_that_tell_how_it_went_are_read(tail: bytes) -> None:
    embedded = embed(b'{"status":"failed","error":{"m":1}' + tail + b"}")

    assert embedded is not None
    assert (embedded.status, embedded.error) == ("failed", {"m": 1})


def test_a_long_body_is_read_back_as_it_was() -> None:
    value = {
        "messages": [{"role": "user", "content": 'say "é" \\ \n' * 50, "n": i} for i in range(99)]
    }
    body = json.dumps(value, indent=1).encode()

    embedded = embed(body)

    assert embedded is not None
    assert json.loads(embedded.json) == value
    assert b"\n" not in embedded.json
