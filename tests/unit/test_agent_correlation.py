"""How an agent carries a rollout's id into paths and base URLs, with capture on and off."""

from typing import Any

import pytest
from fastapi import FastAPI, Request
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.base_resources_server import BaseRunRequest
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.errors import ConnectFailed, InvalidRolloutId
from nemo_gym.transport.directory import Directory
from nemo_gym.transport.server_client import ServerClient

_ON = {"observability_enabled": True, "model_call_capture_dir": "/captures"}
_BODY = {"responses_create_params": {"input": "q"}, "_ng_task_index": 3, "_ng_rollout_index": 1}


class _Agent(SimpleResponsesAPIAgent):
    async def responses(self, request: Request) -> Any:
        return {"path": self.url_path_for_request("/v1/responses", request)}

    async def run(self, request: Request) -> Any:
        return {}


def _agent(settings: dict[str, Any], directory: Directory | None = None) -> _Agent:
    client = ServerClient(directory or Directory(), settings)
    return _Agent(config=BaseResponsesAPIAgentConfig(name="agent"), server_client=client)


def _request(path: str) -> Request:
    raw = path.encode()
    return Request({"type": "http", "path": path, "raw_path": raw, "headers": []})


@pytest.mark.parametrize("body", [_BODY, BaseRunRequest.model_validate(_BODY)], ids=["dict", "run"])
def test_a_run_body_gives_its_rollout(body: Any) -> None:
    agent = _agent(_ON)

    assert agent.rollout_id_from_run(body) == "3-1"
    assert agent.url_path_for_run("/v1/responses", body) == "/ng-rollout/3-1/v1/responses"


def test_attempts_and_explicit_ids_are_carried() -> None:
    agent = _agent(_ON)

    assert agent.rollout_id_from_run({**_BODY, "_ng_attempt_index": 2}) == "3-1-a2"
    assert agent.rollout_id_from_run({**_BODY, "_ng_rollout_id": "mine"}) == "mine"
    assert agent.rollout_id_from_run({"responses_create_params": {}}) is None


def test_an_inbound_prefix_is_carried_on() -> None:
    agent = _agent(_ON)
    inbound = _request("/ng-rollout/0-5/v1/responses")

    assert agent.url_path_for_request("/v1/messages", inbound) == "/ng-rollout/0-5/v1/messages"
    assert agent.url_path_for_request("/v1/messages", _request("/v1/responses")) == "/v1/messages"


@pytest.mark.parametrize(
    ("base_url", "expected"),
    [
        ("http://h/v1", "http://h/ng-rollout/3-1/v1"),
        ("http://h", "http://h/ng-rollout/3-1"),
        ("http://h/", "http://h/ng-rollout/3-1/"),
        ("https://u:p@h:8000/a/v1?x=1", "https://u:p@h:8000/ng-rollout/3-1/a/v1?x=1"),
        ("http://[::1]:80/v1", "http://[::1]:80/ng-rollout/3-1/v1"),
    ],
)
def test_the_prefix_goes_after_the_origin(base_url: str, expected: str) -> None:
    assert _agent(_ON).base_url_for_run(base_url, _BODY) == expected


def test_a_model_servers_base_url_ends_in_v1() -> None:
    directory = Directory()
    directory.set_addresses("policy_model", ["http://127.0.0.1:9000"])
    agent = _agent(_ON, directory)

    assert agent.resolve_model_base_url("policy_model") == "http://127.0.0.1:9000/v1"
    assert (
        agent.resolve_model_base_url("policy_model", "3-1")
        == "http://127.0.0.1:9000/ng-rollout/3-1/v1"
    )


def test_an_unknown_model_server_and_an_unsafe_id_are_refused() -> None:
    with pytest.raises(ConnectFailed, match="nobody"):
        _agent(_ON).resolve_model_base_url("nobody")
    with pytest.raises(InvalidRolloutId):
        _agent(_ON).resolve_model_base_url("policy_model", "../etc")


@pytest.mark.parametrize("settings", [{}, {"observability_enabled": False}])
def test_with_capture_off_nothing_is_prefixed(settings: dict[str, Any]) -> None:
    directory = Directory()
    directory.set_addresses("policy_model", ["http://h"])
    agent = _agent(settings, directory)

    assert agent.url_path_for_run("/v1/responses", _BODY) == "/v1/responses"
    assert agent.base_url_for_run("http://h/v1", _BODY) == "http://h/v1"
    assert agent.resolve_model_base_url("policy_model", "3-1") == "http://h/v1"
    inbound = _request("/ng-rollout/0-5/v1/responses")
    assert agent.url_path_for_request("/v1/responses", inbound) == "/v1/responses"


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 9))
def test_what_is_put_into_a_path_is_found_in_it_again(
    task: int, rollout: int, attempt: int
) -> None:
    agent = _agent(_ON)
    keys = {"_ng_task_index": task, "_ng_rollout_index": rollout, "_ng_attempt_index": attempt}

    path = agent.url_path_for_run("/v1/responses", keys)

    assert agent.url_path_for_request("/v1/responses", _request(path)) == path


def test_the_prefixed_self_call_route_is_registered() -> None:
    app: FastAPI = _agent({}).setup_webserver()

    paths = {getattr(route, "path", None) for route in app.routes}
    assert {"/run", "/v1/responses", "/ng-rollout/{rollout_id}/v1/responses"} <= paths


async def test_a_prefixed_self_call_reaches_responses_with_its_prefix() -> None:
    directory = Directory()
    agent = _agent(_ON, directory)
    directory.register_local("agent", agent.setup_webserver())

    reply = await agent.server_client.post("agent", "/ng-rollout/7-0/v1/responses", json={})

    assert await reply.json() == {"path": "/ng-rollout/7-0/v1/responses"}
