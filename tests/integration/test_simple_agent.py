"""The built-in agent's loop, against a scripted model and an environment of raw routes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import Field
from starlette.types import Receive, Scope, Send

from nemo_gym.base_resources_server import BaseResourcesServerConfig, SimpleResourcesServer
from nemo_gym.base_responses_api_agent import Body
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.responses_api_agents.simple_agent.app import (
    SimpleAgent,
    SimpleAgentConfig,
    SimpleAgentRunRequest,
    SimpleAgentVerifyResponse,
)
from nemo_gym.servers.raw import send_json
from nemo_gym.servers.recorder import Recorder, ToolCall
from support.in_cell import InCell

_CONFIG: dict[str, Any] = {
    "name": "agent",
    "resources_server": {"name": "env"},
    "model_server": {"name": "model"},
}
_TOOL = {"type": "function", "name": "add", "parameters": {}}
_KINDS = {"env": "resources_servers", "model": "responses_api_models"}


def _call(name: str, arguments: str, call_id: str = "c") -> dict[str, str]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def _says(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part]}


def _response(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}
    return {"id": "r", "object": "response", "output": list(output), "usage": usage, **more}


class _Model:
    """Answers with one scripted response after another; keeps the requests."""

    def __init__(self, *answers: dict[str, Any] | bytes, status: int = 200) -> None:
        self.answers = list(answers)
        self.status = status
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        self.requests.append(json.loads(body))
        self.paths.append(scope["path"])
        await send_json(send, self.status, self.answers.pop(0))


class _Environment(SimpleResourcesServer):
    """Two tools that only answer when both are being called; state is per session."""

    config: BaseResourcesServerConfig
    together: Any = None
    total: dict[str, int] = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/add")(self.add)
        app.post("/meet")(self.meet)
        app.post("/refuse")(self.refuse)
        app.post("/count")(self.count)
        return app

    async def add(self, request: Request, body: dict[str, int]) -> dict[str, int]:
        key = request.session["session_id"]
        self.total[key] = self.total.get(key, 0) + body["n"]
        return {"total": self.total[key]}

    async def meet(self, body: dict[str, Any]) -> str:
        await asyncio.wait_for(self.together.wait(), 5)
        return str(body["who"])

    async def count(self, body: dict[str, Any]) -> dict[str, Any]:
        return body

    async def refuse(self) -> None:
        raise HTTPException(409, "not now")

    async def verify(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        return {**body, "reward": float(self.total.get(request.session["session_id"], 0))}


class _Run:
    """One agent with its model and environment."""

    def __init__(
        self,
        model: _Model,
        agent_class: type[SimpleAgent] = SimpleAgent,
        settings: dict[str, Any] | None = None,
        **config: Any,
    ) -> None:
        tree: dict[str, Any] = {name: {kind: {}} for name, kind in _KINDS.items()}
        self.cell = InCell({}, settings={**tree, **(settings or {})})
        client = self.cell.client
        self.environment = _Environment(
            config=BaseResourcesServerConfig(name="env"),
            server_client=client,
            together=asyncio.Barrier(2),
        )
        agent_config = SimpleAgentConfig.model_validate({**_CONFIG, **config})
        agent = agent_class(config=agent_config, server_client=client)
        self.cell.add_app("env", self.environment.setup_webserver())
        self.cell.add_app("agent", agent.setup_webserver())
        self.cell.add_app("model", model)

    async def row(self, **row: Any) -> tuple[int, dict[str, Any]]:
        params = {"input": "go", **row.pop("params", {})}
        body = {"responses_create_params": params, **row}
        reply = await self.cell.client.post("agent", "/run", json=body)
        return reply.status, await reply.json()


@pytest.fixture
async def run() -> AsyncIterator[Callable[..., _Run]]:
    made: list[_Run] = []

    def make(*args: Any, **kwargs: Any) -> _Run:
        made.append(_Run(*args, **kwargs))
        return made[-1]

    yield make
    for each in made:
        await each.cell.aclose()


def _outputs(verified: dict[str, Any]) -> list[str]:
    return [i["output"] for i in verified["response"]["output"] if "output" in i]


async def test_tools_run_in_the_session_and_the_whole_conversation_is_verified(run: Any) -> None:
    first = _response(_call("add", '{"n": 2}', "a"), _call("add", '{"n": 3}', "b"))
    model = _Model(first, _response(_call("add", '{"n": 4}')), _response(_says("done")))

    status, verified = await run(model).row(params={"tools": [_TOOL]}, kept={"a": [1.0, None]})

    assert status == 200
    assert verified["reward"] == 9.0
    assert verified["kept"] == {"a": [1.0, None]}
    output = verified["response"]["output"]
    assert [item.get("call_id", item["type"]) for item in output] == [
        *["a", "b", "a", "b"],
        *["c", "c", "message"],
    ]
    assert verified["response"]["usage"] == {
        "input_tokens": 30,
        "output_tokens": 3,
        "total_tokens": 33,
    }
    # What the model said and what the tools answered went back to it, in order.
    assert model.requests[2]["input"] == [{"role": "user", "content": "go"}, *output[:-1]]
    assert all("stream" not in request for request in model.requests)


async def test_calls_of_one_turn_run_at_the_same_time_and_keep_their_order(run: Any) -> None:
    calls = [_call("meet", '{"who": "a"}', "1"), _call("meet", '{"who": "b"}', "2")]

    _, verified = await run(_Model(_response(*calls), _response(_says("met")))).row()

    assert _outputs(verified) == ['"a"', '"b"']


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        pytest.param(_call("add", '{"n": '), "not valid JSON", id="cut-arguments"),
        pytest.param(_call("add", "[1]"), "not a JSON object", id="arguments-no-object"),
        pytest.param(_call("add", '{"n": "x"}'), "422", id="arguments-of-wrong-type"),
        pytest.param(_call("subtract", "{}"), "no tool 'subtract'", id="unknown-tool"),
        pytest.param(_call("verify", "{}"), "no tool 'verify'", id="route-that-is-no-tool"),
        pytest.param(_call("../verify", "{}"), "no tool", id="path-as-name"),
        pytest.param(_call("refuse", ""), "not now", id="tool-refuses"),
    ],
)
async def test_what_is_wrong_with_a_call_is_said_to_the_model(
    run: Any, call: dict[str, str], expected: str
) -> None:
    tools = [_TOOL, {**_TOOL, "name": "refuse"}]
    model = _Model(_response(call), _response(_says("sorry")))

    status, verified = await run(model).row(params={"tools": tools})

    assert status == 200
    assert expected in _outputs(verified)[0]
    assert model.requests[1]["input"][-1]["output"] == _outputs(verified)[0]


async def test_no_arguments_are_an_empty_object(run: Any) -> None:
    model = _Model(_response(_call("count", "")), _response(_says("ok")))

    _, verified = await run(model).row()

    assert _outputs(verified) == ["{}"]


async def test_the_loop_stops_at_max_steps_and_says_so(run: Any) -> None:
    model = _Model(*[_response(_call("add", '{"n": 1}')) for _ in range(9)])

    _, verified = await run(model, max_steps=3).row()

    assert len(model.requests) == 3
    assert verified["reward"] == 2.0
    assert verified["response"]["status"] == "incomplete"
    assert verified["response"]["incomplete_details"] == {"reason": "max_steps"}


async def test_an_incomplete_response_ends_the_loop_without_its_calls(run: Any) -> None:
    cut = _response(_call("add", '{"n": 1'), status="incomplete")

    _, verified = await run(_Model(cut)).row()

    assert verified["reward"] == 0.0
    assert _outputs(verified) == []


@pytest.mark.parametrize(
    ("model", "provider_status", "text"),
    [
        (lambda: _Model({"error": {"message": "slow down"}}, status=429), 429, "slow down"),
        (lambda: _Model(b"<html>"), 200, "<html>"),
        (lambda: _Model(b"[]"), 200, "[]"),
        (lambda: _Model(b"{}"), 200, "{}"),
        (lambda: _Model(b'{"output": null}'), 200, "null"),
        (lambda: _Model(b'{"output": ["text"]}'), 200, "text"),
        (lambda: _Model(b'{"output": [{"type": "message", "content": 5}]}'), 200, "5"),
        (lambda: _Model(b'{"output": []}', status=302), 302, "[]"),
        (lambda: _Model(_response(status="failed", error={"message": "overheated"})), 200, "over"),
    ],
    ids=[
        *("refused", "not-json", "no-object", "empty", "no-output", "no-items", "no-content"),
        *("moved", "failed"),
    ],
)
async def test_a_model_that_fails_is_a_model_error_with_its_status_and_text(
    run: Any, model: Callable[[], _Model], provider_status: int, text: str
) -> None:
    status, answer = await run(model()).row()

    error = answer["error"]
    assert status == 500
    assert (error["failure_class"], error["provider_status"]) == ("model_error", provider_status)
    assert text in error["provider_body"]


@pytest.mark.parametrize(("on", "prefix"), [(True, "/ng-rollout/5-1"), (False, "")])
async def test_model_calls_are_prefixed_where_they_are_captured(
    run: Any, on: bool, prefix: str
) -> None:
    model = _Model(_response(_says("hi")))

    await run(model, settings={"observability_enabled": on}).row(
        _ng_task_index=5, _ng_rollout_index=1
    )

    assert model.paths == [f"{prefix}/v1/responses"]


async def test_responses_alone_runs_the_loop_under_the_callers_session(run: Any) -> None:
    one = run(_Model(_response(_call("add", '{"n": 5}')), _response(_says("five"))))
    client = one.cell.client
    seeded = await client.post("env", "/seed_session", json={})

    reply = await client.post(
        "agent", "/v1/responses", json={"input": "go"}, cookies=seeded.cookies
    )

    verified = await client.post("env", "/verify", json={}, cookies=reply.cookies)
    assert (await reply.json())["output"][-1] == _says("five")
    assert (await verified.json())["reward"] == 5.0


class _Shouting(SimpleAgent):
    async def responses(
        self,
        request: Request,
        response: Response,
        body: NeMoGymResponseCreateParamsNonStreaming = Body(),  # noqa: B008 - FastAPI's way
    ) -> NeMoGymResponse:
        answer = await super().responses(request, response, body)
        last: Any = answer.output[-1]
        last.content[0].text = answer.output_text.upper()
        return answer


class _Doubling(SimpleAgent):
    async def run(self, request: Request, body: SimpleAgentRunRequest) -> SimpleAgentVerifyResponse:
        verified = await super().run(request, body)
        verified.reward *= 2
        return verified


@pytest.mark.parametrize(
    ("agent_class", "reward", "text"), [(_Shouting, 1.0, "DONE"), (_Doubling, 2.0, "done")]
)
async def test_what_a_subclass_overrides_is_what_runs(
    run: Any, agent_class: type[SimpleAgent], reward: float, text: str
) -> None:
    model = _Model(_response(_call("add", '{"n": 1}')), _response(_says("done")))

    _, verified = await run(model, agent_class).row()

    assert verified["reward"] == reward
    assert verified["response"]["output"][-1]["content"][0]["text"] == text


class _Notes:
    def __init__(self) -> None:
        self.kept: list[tuple[object, ...]] = []

    def turn(self, step: int, response: Any, started_at: float, duration_ms: float) -> None:
        self.kept.append((step, len(response["output"]), started_at > 0, duration_ms > 0))

    def tool(self, step: int, call: ToolCall) -> None:
        self.kept.append((step, call.name, call.output, call.error))


_NOTES = _Notes()


class _Noting(SimpleAgent):
    def recorder_for(self, row: dict[str, Any]) -> Recorder:
        return _NOTES


async def test_a_recorder_is_told_of_turns_and_tool_calls(run: Any) -> None:
    first = _response(_call("add", '{"n": 1}'), _call("verify", "{}"))

    await run(_Model(first, _response(_says("done"))), _Noting).row()

    unknown = "Error: there is no tool 'verify'. The tools are: none."
    assert _NOTES.kept == [
        (0, 2, True, True),
        (0, "add", '{"total":1}', None),
        (0, "verify", unknown, "unknown_tool"),
        (1, 1, True, True),
    ]


async def test_half_a_character_of_the_model_goes_on_as_a_capture_has_it(
    run: Callable[..., _Run],
) -> None:
    call = _call("count", json.dumps({"n": 1}))
    first = json.dumps(_response({**call, "note": "\ud800", "odd": float("nan")})).encode()
    agent = run(model := _Model(first, _response(_says("done"))))
    status, answer = await agent.row()

    assert status == 200
    assert answer["response"]["output"][0]["note"] == "\ufffd"
    assert model.requests[1]["input"][1]["odd"] is None
