"""What stands around an app: rollout context, sessions, JSON, and how failures are answered."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.testclient import TestClient

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.ids import current_rollout_id
from nemo_gym.server_utils import SESSION_ID_KEY
from nemo_gym.servers.answers import redactor_of
from nemo_gym.servers.raw import json_route
from nemo_gym.transport.directory import Directory
from nemo_gym.transport.server_client import ServerClient

_SECRETS = {"policy_api_key": "sk-abcdef123"}


class _Environment(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/session")(self.session)
        app.post("/rollout")(self.rollout)
        app.post("/echo")(self.echo)
        app.post("/leak")(self.leak)
        return app

    async def session(self, request: Request) -> str:
        return str(request.session[SESSION_ID_KEY])

    async def rollout(self) -> str | None:
        return current_rollout_id()

    async def echo(self, body: dict[str, Any]) -> Any:
        return body

    async def leak(self) -> None:
        raise ValueError("refused with key sk-abcdef123")

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


class _Agent(SimpleResponsesAPIAgent):
    async def responses(self, request: Request) -> Any:
        return None

    async def run(self, body: dict[str, Any]) -> Any:
        if body.get("fails"):
            raise ValueError("refused with key sk-abcdef123")
        return {"rollout": current_rollout_id(), "body": body}


def _client(name: str = "env") -> TestClient:
    server = _Environment(
        config=BaseResourcesServerConfig(name=name),
        server_client=ServerClient(Directory(), _SECRETS),
    )
    return TestClient(server.setup_webserver())


def _agent_client() -> TestClient:
    agent = _Agent(
        config=BaseResponsesAPIAgentConfig(name="agent"),
        server_client=ServerClient(Directory(), _SECRETS),
    )
    return TestClient(agent.setup_webserver())


def test_a_session_begins_with_the_first_call_and_is_carried_by_its_cookie() -> None:
    client = _client()

    first, second = client.post("/session").json(), client.post("/session").json()

    assert first == second
    assert list(client.cookies) == ["ng_env"]
    assert _client().post("/session").json() != first


def test_the_cookie_is_named_after_the_instance_and_health_begins_no_session() -> None:
    client = _client("my env; x")

    assert client.get("/health").json() == {"status": "ok"}
    assert not client.cookies
    client.post("/session")
    assert list(client.cookies) == ["ng_my_env__x"]


def test_a_session_of_another_process_is_refused_until_one_is_begun_here() -> None:
    before, restarted = _client(), _client()
    lost = before.post("/session").json()
    restarted.cookies.set("ng_env", before.cookies["ng_env"])

    refused = restarted.post("/session")
    seeded = restarted.post("/seed_session", json={})

    assert (refused.status_code, refused.json()["error"]["type"]) == (409, "session_lost")
    assert seeded.status_code == 200
    assert restarted.post("/session").json() != lost


def test_a_session_cookie_that_the_server_took_back_begins_a_new_session() -> None:
    client = _client()
    client.cookies.set("ng_env", "null")

    assert client.post("/session").status_code == 200


def test_a_prefix_is_taken_off_and_names_the_current_rollout() -> None:
    client = _client()

    assert client.post("/ng-rollout/4-2-a1/rollout").json() == "4-2-a1"
    assert client.post("/rollout").json() is None


@pytest.mark.parametrize("make", [_client, _agent_client])
def test_an_id_outside_the_grammar_is_refused(make: Callable[[], TestClient]) -> None:
    refused = make().post("/ng-rollout/..%2fx/rollout")

    assert refused.status_code == 400
    assert "rollout id" in refused.json()["error"]["message"]


def test_the_body_of_run_names_the_current_rollout_and_arrives_whole() -> None:
    body = {"big": "x" * 200_000, "_ng_task_index": 1, "_ng_rollout_index": 2}

    answer = _agent_client().post("/run", json=body).json()

    assert answer == {"rollout": "1-2", "body": body}


@pytest.mark.parametrize("body", [{}, {"_ng_task_index": True, "_ng_rollout_index": 0}])
def test_a_run_without_indices_belongs_to_no_rollout(body: dict[str, Any]) -> None:
    assert _agent_client().post("/run", json=body).json()["rollout"] is None


def test_an_explicit_id_outside_the_grammar_is_refused() -> None:
    refused = _agent_client().post("/run", json={"_ng_rollout_id": "../etc"})

    assert refused.status_code == 400


def test_a_run_body_that_is_not_json_is_the_routes_to_refuse() -> None:
    assert _agent_client().post("/run", content=b"{nope").status_code == 422


def test_a_json_body_needs_no_content_type_and_python_numbers_pass() -> None:
    client = _client()

    assert client.post("/echo", content=b'{"a": 1}').json() == {"a": 1}
    assert client.post("/echo", content=b'{"a": Infinity}').status_code == 200


@pytest.mark.parametrize(
    ("make", "path", "kind"),
    [(_client, "/leak", "resources_server_error"), (_agent_client, "/run", "rollout_failure")],
)
def test_an_exception_is_a_500_with_its_text_and_without_secrets(
    make: Callable[[], TestClient], path: str, kind: str
) -> None:
    failed = make().post(path, json={"fails": True})

    error = failed.json()["error"]
    assert failed.status_code == 500
    assert error["type"] == kind
    assert error["message"] == "ValueError: refused with key ***"


def test_the_class_that_was_returned_is_sent_not_the_one_that_was_annotated() -> None:
    body = {
        "responses_create_params": {"input": "q"},
        "response": {"output": [{"type": "unheard_of", "x": None}]},
        "verifier_metadata": {"a": 1},
    }

    assert _client().post("/verify", json=body).json() == {**body, "reward": 1.0}


def test_a_raw_route_answers_json_with_path_parameters_and_refuses_what_is_none() -> None:
    app = FastAPI()

    async def handle(request: Request, body: dict[str, Any]) -> object:
        return {"id": request.path_params["id"], "body": body}

    json_route(app, "/raw/{id}", handle)
    client = TestClient(app)

    assert client.post("/raw/7", json={"a": 1}).json() == {"id": "7", "body": {"a": 1}}
    assert client.post("/raw/7").json() == {"id": "7", "body": {}}
    assert client.post("/raw/7", content=b"[1]").status_code == 400
    assert client.post("/raw/7", content=b"{").status_code == 400


@pytest.mark.parametrize("make", [_client, _agent_client])
def test_a_server_without_metrics_of_its_own_says_so(make: Callable[[], TestClient]) -> None:
    assert make().get("/aggregate_metrics").json() == {"custom": False}


@pytest.mark.parametrize("client", [None, 7, "client"])
def test_a_server_is_built_with_whatever_a_test_hands_in_as_its_client(client: object) -> None:
    assert redactor_of(_Clientless(client)).redact("plain text") == "plain text"


class _Clientless:
    def __init__(self, client: object) -> None:
        self.server_client = client
