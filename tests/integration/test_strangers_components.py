"""Components written from the documented interface only, run unchanged."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.in_cell import COMPONENTS, InCell

_REFS = {
    "resources_server": {"type": "resources_servers", "name": "notebook"},
    "model_server": {"type": "responses_api_models", "name": "policy_model"},
}
_TREE = {
    "notebook": {"resources_servers": {"notebook": {"entrypoint": "app.py", "max_notes": 3}}},
    "policy_model": {"responses_api_models": {"parrot": {"entrypoint": "app.py"}}},
    "patient": {"responses_api_agents": {"patient_agent": _REFS}},
    "simple": {"responses_api_agents": {"simple_agent": _REFS}},
}
_AGENTS = ["patient", "simple"]


def _row(position: int, **more: Any) -> dict[str, Any]:
    path = COMPONENTS / "resources_servers/notebook/data/example.jsonl"
    row: dict[str, Any] = json.loads(path.read_text().splitlines()[position])
    return row | more


@pytest.fixture
async def cell() -> AsyncIterator[InCell]:
    cell = InCell(_TREE)
    yield cell
    await cell.aclose()


@pytest.mark.parametrize("agent", _AGENTS)
async def test_a_rollout_runs_from_seed_to_reward(cell: InCell, agent: str) -> None:
    row = _row(1, _ng_task_index=4, _ng_rollout_index=0, mine={"kept": [1, None]})

    reply = await cell.client.post(agent, "/run", json=row)

    verified = await reply.json()
    assert reply.status == 200, verified
    assert verified["reward"] == 1.0
    assert verified["notes"] == ["milk", "eggs"]
    assert verified["response"]["usage"]["total_tokens"] == 30
    assert [item["type"] for item in verified["response"]["output"]] == [
        *["function_call"] * 2,
        *["function_call_output"] * 2,
        "message",
    ]
    assert {key: verified[key] for key in row} == row


@pytest.mark.parametrize("agent", _AGENTS)
async def test_rollouts_keep_their_sessions_apart(cell: InCell, agent: str) -> None:
    rows = [_row(i) for i in range(5)]

    replies = [await cell.client.post(agent, "/run", json=row) for row in rows]

    found = [(await reply.json())["notes"] for reply in replies]
    assert found == [row["wanted"] for row in rows]


@pytest.mark.parametrize("agent", _AGENTS)
async def test_a_tool_that_refuses_is_seen_by_the_model(cell: InCell, agent: str) -> None:
    params = {"input": [{"role": "user", "content": "write a; b; c; d"}]}
    row = _row(0) | {"responses_create_params": params, "wanted": ["a", "d"]}

    verified = await (await cell.client.post(agent, "/run", json=row)).json()

    outputs = [i["output"] for i in verified["response"]["output"] if "output" in i]
    assert any("the notebook is full" in output for output in outputs)
    assert verified["reward"] in (0.5, 1.0)


@pytest.mark.parametrize("agent", _AGENTS)
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"wanted": ["never verify"]}, ("verifier_error", "this notebook cannot be judged")),
        ({"responses_create_params": {"input": "fall over"}}, ("model_error", "fell over")),
    ],
    ids=["verifier-raises", "model-raises"],
)
async def test_a_failure_is_classed_by_the_server_that_failed(
    cell: InCell, agent: str, change: dict[str, Any], expected: tuple[str, str]
) -> None:
    reply = await cell.client.post(agent, "/run", json=_row(0) | change)

    error = (await reply.json())["error"]
    assert reply.status == 500
    assert error["type"] == "rollout_failure"
    assert error["failure_class"] == expected[0]
    assert expected[1] in error["message"]


@pytest.mark.parametrize("server", ["notebook", *_AGENTS])
async def test_metrics_come_from_the_environment(cell: InCell, server: str) -> None:
    rows = [{"_ng_task_index": i // 2, "reward": float(i % 2), "num_notes": i} for i in range(4)]

    reply = await cell.client.post(server, "/aggregate_metrics", json={"verify_responses": rows})

    metrics = await reply.json()
    assert metrics["key_metrics"] == {"mean/reward": 0.5, "tasks": 2}
    assert metrics["agent_metrics"]["pass@2/reward"] == 1.0
    assert metrics["agent_metrics"]["pass^2/reward"] == 0.0
    assert metrics["agent_metrics"]["mean/num_notes"] == 1.5
    assert [group["mean/reward"] for group in metrics["group_level_metrics"]] == [0.5, 0.5]


@pytest.mark.parametrize("name", sorted(_TREE))
async def test_every_server_answers_health(cell: InCell, name: str) -> None:
    assert (await cell.client.get(name, "/health")).status == 200


async def test_a_model_of_two_methods_streams_when_asked_to(cell: InCell) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "stream": True}

    reply = await cell.client.post("policy_model", "/v1/chat/completions", json=body)

    events = (await reply.text()).strip().split("\n\n")
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert events[-1] == "data: [DONE]"
    assert '"content":"hello"' in events[1]


async def test_a_model_without_messages_says_so_in_that_dialect(cell: InCell) -> None:
    reply = await cell.client.post("policy_model", "/v1/messages", json={"messages": []})

    error = await reply.json()
    assert reply.status == 404
    assert error["type"] == "error"
    assert "/v1/responses" in error["error"]["message"]


@pytest.mark.parametrize("server", ["notebook", *_AGENTS])
async def test_an_environment_with_metrics_of_its_own_says_so(cell: InCell, server: str) -> None:
    reply = await cell.client.get(server, "/aggregate_metrics")

    assert await reply.json() == {"custom": True}
