"""The head server's answers."""

import json

from starlette.testclient import TestClient

from nemo_gym.errors import ConfigMistake
from nemo_gym.runtime.head import HeadApp, ServerEntry

_ENTRY = ServerEntry("mcqa", "resources_servers", "mcqa", ("http://127.0.0.1:1",))


def _client() -> TestClient:
    return TestClient(HeadApp("7-a", {"policy_api_key": "***"}, (_ENTRY,)))


def test_health_names_the_run() -> None:
    assert _client().get("/health").json() == {"status": "ok", "run_id": "7-a"}


def test_servers_are_listed_with_their_addresses() -> None:
    (server,) = _client().get("/servers").json()["servers"]

    assert server == {
        "name": "mcqa",
        "kind": "resources_servers",
        "implementation": "mcqa",
        "addresses": ["http://127.0.0.1:1"],
    }


def test_servers_that_cannot_work_are_told_with_the_reason() -> None:
    misfits = {"mcqa": ConfigMistake("what", where="where", mend="mend")}
    client = TestClient(HeadApp("7-a", {}, (_ENTRY,), misfits=misfits))

    told = {"mcqa": {"what": "what", "where": "where", "mend": "mend"}}
    assert client.get("/servers").json()["misfits"] == told
    assert _client().get("/servers").json()["misfits"] == {}


def test_config_is_the_hidden_one() -> None:
    assert json.loads(_client().get("/config").content) == {"policy_api_key": "***"}


def test_other_routes_are_404_and_other_methods_405() -> None:
    assert _client().get("/elsewhere").status_code == 404
    assert _client().post("/config").status_code == 405


def test_metrics_that_are_off_are_404_with_what_switches_them_on() -> None:
    reply = _client().get("/metrics")

    assert reply.status_code == 404
    assert "telemetry.metrics.enabled=true" in reply.json()["error"]["message"]


def test_head_has_the_length_and_no_body() -> None:
    reply = _client().head("/health")

    assert reply.content == b""
    assert int(reply.headers["content-length"]) > 0
