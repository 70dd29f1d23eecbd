"""Whose failure an exception is, and what is said about it."""

import json

import pytest

from nemo_gym.capture.stopping import stopped_response
from nemo_gym.errors import CallTimeout, ConnectFailed, ConnectionLost
from nemo_gym.servers.failures import Failure, ModelFailed, classify, failure_body
from nemo_gym.servers.forward_refusals import Refusal
from nemo_gym.transport.base import RawHeaders
from nemo_gym.transport.response import CallFailed, ServerResponse
from nemo_gym.wire.dialects import DIALECTS, RESPONSES, Dialect


def _call_failed(
    kind: str,
    url_path: str,
    status: int = 503,
    body: bytes = b"later",
    headers: RawHeaders = [],  # noqa: B006 - never changed
) -> CallFailed:
    response = ServerResponse(
        status,
        headers,
        body,
        method="POST",
        url="http://h",
        url_path=url_path,
        server_name="it",
        server_kind=kind,
    )
    return CallFailed(response)


def _raised_from(inner: BaseException) -> BaseException:
    try:
        try:
            raise inner
        except type(inner) as exc:
            raise RuntimeError("wrapped") from exc
    except RuntimeError as exc:
        return exc


def _raised_while_handling(inner: BaseException) -> BaseException:
    try:
        try:
            raise inner
        except type(inner):
            raise KeyError("clean-up failed")  # noqa: B904 - what careless code does
    except KeyError as exc:
        return exc


_MODEL = _call_failed("responses_api_models", "/v1/responses", 429, b"slow down")


@pytest.mark.parametrize(
    ("exc", "failure_class"),
    [
        pytest.param(_MODEL, "model_error", id="model-server"),
        pytest.param(_call_failed("resources_servers", "/verify"), "verifier_error", id="verifier"),
        pytest.param(_call_failed("resources_servers", "/seed_session"), "agent_error", id="seed"),
        pytest.param(_call_failed("responses_api_agents", "/x"), "agent_error", id="other-agent"),
        pytest.param(ConnectFailed("refused"), "connection", id="connect"),
        pytest.param(ConnectionLost("reset", response_started=True), "connection", id="lost"),
        pytest.param(CallTimeout("silence"), "timeout", id="call-timeout"),
        pytest.param(TimeoutError(), "timeout", id="asyncio-timeout"),
        pytest.param(ModelFailed("no JSON", 200, "<html>"), "model_error", id="model-failed"),
        pytest.param(LookupError("a bug"), "agent_error", id="bug"),
        pytest.param(_raised_from(_MODEL), "model_error", id="raised-from"),
        pytest.param(_raised_while_handling(_MODEL), "model_error", id="while-handling"),
        pytest.param(
            ExceptionGroup("tools", [ValueError("x"), _MODEL]), "model_error", id="in-a-group"
        ),
    ],
)
def test_the_class_follows_the_server_that_failed(exc: BaseException, failure_class: str) -> None:
    assert classify(exc).failure_class == failure_class


def test_a_model_failure_carries_the_providers_status_and_text() -> None:
    failure = classify(_raised_from(_MODEL))

    assert (failure.provider_status, failure.provider_body) == (429, "slow down")
    assert "429" in failure.message


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_what_a_model_server_says_by_itself_is_not_put_into_its_providers_mouth(
    dialect: Dialect,
) -> None:
    refusal = Refusal(502, "no answer from http://h", "upstream_unreachable")
    body = refusal.body(dialect)
    failed = _call_failed(
        "responses_api_models", dialect.route.decode(), 502, body, refusal.headers(9)
    )

    failure = classify(failed)

    assert failure == Failure("model_error", "it: no answer from http://h", None, None)


def test_a_failure_that_was_classed_already_is_passed_on() -> None:
    inner = Failure("model_error", "it: 429", 429, "slow down")
    body = json.dumps(failure_body(inner)).encode()

    passed_on = classify(_call_failed("responses_api_agents", "/v1/responses", 500, body))

    assert passed_on == inner


@pytest.mark.parametrize("body", [b"", b"[]", b'{"error": "x"}', b'{"error": {"type": "other"}}'])
def test_any_other_error_body_of_an_agent_is_that_agents_failure(body: bytes) -> None:
    failed = _call_failed("responses_api_agents", "/v1/responses", 500, body)

    assert classify(failed).failure_class == "agent_error"


def test_a_text_of_any_length_is_cut_and_secrets_are_taken_out() -> None:
    failed = _call_failed("responses_api_models", "/v1/responses", 401, b"sk-secret " * 5000)

    failure = classify(failed).redacted(lambda text: text.replace("sk-secret", "***"))

    assert failure.provider_body is not None
    assert len(failure.provider_body) <= 8_000
    assert "sk-secret" not in json.dumps(failure_body(failure))


def test_the_message_names_the_kind_of_exception() -> None:
    assert classify(LookupError("a bug")).message == "LookupError: a bug"
    assert classify(TimeoutError()).message == "TimeoutError"


def test_a_ring_of_causes_ends() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one

    assert classify(one).failure_class == "agent_error"


def test_a_model_server_that_stopped_is_a_lost_connection_and_no_failure_of_the_model() -> None:
    start, body = stopped_response(RESPONSES, "policy")
    stopped = _call_failed(
        "responses_api_models", "/v1/responses", start["status"], body["body"], start["headers"]
    )

    failure = classify(stopped)

    assert failure.failure_class == "connection"
    assert failure.message == "it: policy was stopped while it worked on this call"
    assert failure.provider_status is None
