"""The parts of a call between servers that need no server."""

import copy
import json
import pickle
from http.cookies import SimpleCookie
from types import MappingProxyType, SimpleNamespace

import pytest
from pydantic import BaseModel

from nemo_gym.transport.base import RawHeaders
from nemo_gym.transport.outgoing import Options, call_for
from nemo_gym.transport.response import (
    CallFailed,
    ServerResponse,
    get_response_json,
    raise_for_status,
)
from nemo_gym.transport.tree import ReadOnlyTree


class Body(BaseModel):
    text: str
    inner: "Body | None" = None


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"a": 1}, b'{"a":1}'),
        ([1, None, "é"], '[1,null,"é"]'.encode()),
        (b'{"as": "it is"}', b'{"as": "it is"}'),
        (Body(text="x"), b'{"text":"x","inner":null}'),
        ({"deep": [Body(text="x", inner=Body(text="y"))]}, None),
        ({1: (2, 3)}, b'{"1":[2,3]}'),
        (ReadOnlyTree({"a": {"b": 1}}), b'{"a":{"b":1}}'),
        ({"a": SimpleNamespace()}, TypeError),
        ({"a": {"x"}, "b": MappingProxyType({"c": 1})}, b'{"a":["x"],"b":{"c":1}}'),
    ],
    ids=["dict", "list", "bytes", "model", "models inside", "loose", "settings", "other", "odd"],
)
def test_json_takes_what_components_have(
    given: object, sent: bytes | type[Exception] | None
) -> None:
    if sent is TypeError:
        with pytest.raises(TypeError, match="SimpleNamespace"):
            call_for("POST", "/verify", {"json": given})
        return
    call = call_for("POST", "/verify", {"json": given})

    assert (b"content-type", b"application/json") in call.headers
    if sent is None:
        inner = {"text": "x", "inner": {"text": "y", "inner": None}}
        assert json.loads(call.body) == {"deep": [inner]}
    else:
        assert call.body == sent


@pytest.mark.parametrize(
    ("options", "body", "content_type"),
    [
        ({"data": b"raw"}, b"raw", None),
        ({"data": "é"}, "é".encode(), b"text/plain; charset=utf-8"),
        (
            {"data": {"a": "b c", "d": [1, 2]}},
            b"a=b+c&d=1&d=2",
            b"application/x-www-form-urlencoded",
        ),
        ({}, b"", None),
        ({"json": None}, b"", None),
    ],
)
def test_data_takes_bytes_text_and_forms(
    options: Options, body: bytes, content_type: bytes | None
) -> None:
    call = call_for("POST", "/", options)

    assert call.body == body
    assert dict(call.headers).get(b"content-type") == content_type


def test_a_content_type_of_the_callers_own_stays() -> None:
    options: Options = {"json": {}, "headers": {"Content-Type": "application/x"}}

    assert call_for("POST", "/", options).headers == [(b"content-type", b"application/x")]


@pytest.mark.parametrize(
    ("path", "params", "target"),
    [
        ("/run", None, "/run"),
        ("run", None, "/run"),
        ("/a b/é", None, "/a%20b/%C3%A9"),
        ("/a%2Fb", None, "/a%2Fb"),
        ("/a", {"q": "x y", "n": [1, 2]}, "/a?q=x+y&n=1&n=2"),
        ("/a?b=c", [("d", "e")], "/a?b=c&d=e"),
    ],
)
def test_paths_and_params_become_a_target(path: str, params: object, target: str) -> None:
    assert call_for("GET", path, {"params": params}).target == target  # type: ignore[typeddict-item]


def test_cookies_of_a_response_go_to_the_next_call_as_they_were_set() -> None:
    headers: RawHeaders = [
        (b"set-cookie", b'ng_mcqa="a=b\\"c"; Path=/; HttpOnly; SameSite=lax'),
        (b"set-cookie", b"other=1; Max-Age=3600"),
        (b"set-cookie", b"gone=; Max-Age=0"),
    ]
    cookies = response(200, headers=headers).cookies

    assert isinstance(cookies, SimpleCookie)
    assert cookies["ng_mcqa"].value == 'a=b"c'
    sent = dict(call_for("GET", "/", {"cookies": cookies}).headers)[b"cookie"]
    assert sent.split(b"; ") == [b'ng_mcqa="a=b\\"c"', b"other=1"]


def test_cookies_may_be_a_plain_mapping() -> None:
    assert call_for("GET", "/", {"cookies": {"a": "1", "b": "2"}}).headers == [
        (b"cookie", b"a=1; b=2")
    ]


def response(status: int, body: bytes = b"", headers: RawHeaders | None = None) -> ServerResponse:
    return ServerResponse(
        status,
        headers or [],
        body,
        method="POST",
        url="http://h/v1/responses",
        url_path="/v1/responses",
        server_name="policy_model",
        server_kind="responses_api_models",
    )


async def test_a_body_is_read_in_every_way() -> None:
    answer = response(200, b'{"a": "\xc3\xa9"}')

    assert answer.ok
    assert await answer.read() == answer.body
    assert await answer.json() == await get_response_json(answer) == {"a": "é"}
    assert await answer.text() == '{"a": "é"}'
    assert await answer.content.read(3) + await answer.content.read() == answer.body


def test_headers_are_found_in_any_case() -> None:
    answer = response(200, headers=[(b"x-a", b"1"), (b"x-a", b"2")])

    assert answer.headers["X-A"] == "1"
    assert answer.headers.getall("x-A") == ["1", "2"]
    assert dict(answer.headers) == {"x-a": "1"}
    assert "X-B" not in answer.headers
    assert answer.headers.get("x-b") is None


async def test_an_error_status_is_raised_whether_or_not_it_is_awaited() -> None:
    answer = response(429, b'{"error": "slow down"}')

    with pytest.raises(CallFailed):
        answer.raise_for_status()
    with pytest.raises(CallFailed) as failed:
        raise_for_status(answer)
    assert failed.value.status == 429
    assert failed.value.server_name == "policy_model"
    assert failed.value.server_kind == "responses_api_models"
    assert failed.value.url_path == "/v1/responses"
    assert failed.value.body == '{"error": "slow down"}'
    assert "policy_model" in str(failed.value)
    await raise_for_status(response(204))


async def test_an_answer_that_is_no_json_is_shown_with_its_server() -> None:
    with pytest.raises(ValueError, match=r"policy_model: .* is not JSON .*<html>"):
        await response(200, b"<html>").json()


def test_settings_answer_to_keys_and_attributes_and_cannot_be_changed() -> None:
    tree = ReadOnlyTree({"a": {"b": [{"c": 1}]}, "n": None})

    assert tree.a.b[0].c == tree["a"]["b"][0]["c"] == 1
    assert tree.get("missing") is None
    with pytest.raises(AttributeError):
        _ = tree.missing
    for change in (
        lambda: tree.update(x=1),
        lambda: tree.pop("a"),
        lambda: tree["a"].__setitem__("b", 1),
        lambda: setattr(tree, "a", 1),
    ):
        with pytest.raises(TypeError, match="cannot be changed"):
            change()
    assert dict(tree) == {"a": {"b": [{"c": 1}]}, "n": None}
    assert copy.copy(tree) is copy.deepcopy(tree) is tree
    assert pickle.loads(pickle.dumps(tree)) == tree  # noqa: S301 - our own bytes
