"""The loop: ask the model, run the tools it calls, ask again, until it calls none.

Comes in: a Responses create request. Goes out: one response whose `output` is the whole
conversation, in order, with the usage of all calls added up. Plain dicts and bytes; each item is
encoded once, however many turns send it again.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from nemo_gym.responses_api_agents.simple_agent.tools import ToolBox
from nemo_gym.server_utils import ServerClient, raise_for_status
from nemo_gym.servers.failures import ModelFailed
from nemo_gym.servers.recorder import SILENT, Recorder, ToolCall
from nemo_gym.servers.usage import add_usage
from nemo_gym.wire.json import JsonError, dumps, loads, loads_strictly

__all__ = ["Loop"]

_BODY_LIMIT = 8_000


@dataclass(frozen=True, slots=True)
class Loop:
    """What one conversation needs; `run` is called once."""

    client: ServerClient
    model_server: str
    url_path: str
    """Of the model route, under the rollout's prefix where calls are captured."""
    tools: ToolBox
    max_steps: int | None = None
    """Model calls at most; None: as many as it takes."""
    recorder: Recorder = SILENT

    async def run(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the last response of the model, with the output and the usage of all of them."""
        request = _Request(params)
        output: list[Any] = []
        usage: dict[str, Any] | None = None
        step = 0
        while True:
            answer = await self._ask(step, request.body())
            step += 1
            items = answer["output"]
            output += items
            usage = add_usage(usage, answer.get("usage"))
            calls = [item for item in items if item.get("type") == "function_call"]
            if not calls or answer.get("status") == "incomplete":
                break
            if step == self.max_steps:
                answer |= {"status": "incomplete", "incomplete_details": {"reason": "max_steps"}}
                break
            results = await self._run_tools(step - 1, calls)
            output += results
            request.extend([*items, *results])
        return answer | {"output": output, "usage": usage}

    async def _ask(self, step: int, body: bytes) -> dict[str, Any]:
        started_at, began = time.time(), time.perf_counter()
        reply = await self.client.post(
            server_name=self.model_server, url_path=self.url_path, json=body
        )
        raise_for_status(reply)
        raw = await reply.read()
        answer = _response(self.model_server, reply.status, raw)
        self.recorder.turn(step, answer, started_at, (time.perf_counter() - began) * 1000)
        if answer.get("status") == "failed":
            message = f"{self.model_server}: the response failed: {_reason(answer)}"
            raise ModelFailed(message, reply.status, _text(raw))
        return answer

    async def _run_tools(self, step: int, calls: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Run calls at the same time; return their output items in the order of the calls."""
        if len(calls) == 1:
            ended = [await self.tools.call(calls[0])]
        else:
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(self.tools.call(call)) for call in calls]
            ended = [task.result() for task in running]
        for call in ended:
            self.recorder.tool(step, call)
        return [_output_item(call) for call in ended]


class _Request:
    """A create request that grows from turn to turn."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        known = {key: value for key, value in params.items() if key not in {"input", "stream"}}
        self._head = dumps(known)
        given = params.get("input") or []
        if isinstance(given, str):
            given = [{"role": "user", "content": given}]
        self._items = [dumps(item) for item in given]

    def extend(self, items: Sequence[Any]) -> None:
        """Add what the model and the tools said."""
        self._items += [dumps(item) for item in items]

    def body(self) -> bytes:
        """Return the request as JSON."""
        comma = b"" if self._head == b"{}" else b","
        joined = b",".join(self._items)
        return b"".join((self._head[:-1], comma, b'"input":[', joined, b"]}"))


def _output_item(call: ToolCall) -> dict[str, str]:
    return {"type": "function_call_output", "call_id": call.call_id, "output": call.output}


def _response(model_server: str, status: int, raw: bytes) -> dict[str, Any]:
    """Return the response in an answer; raises `ModelFailed` for anything else.

    What is no response is nothing that a verifier could judge: a reward of it would be a lie.
    """
    try:
        answer = _value(raw)
    except JsonError as exc:
        message = f"{model_server} answered {status} with a body that is not JSON ({exc})"
        raise ModelFailed(message, status, _text(raw)) from None
    problem = _no_response(answer)
    if problem is not None or status >= 300:
        message = f"{model_server} answered {status} with a body that is no response"
        raise ModelFailed(f"{message}: {problem}" if problem else message, status, _text(raw))
    return cast("dict[str, Any]", answer)


def _value(raw: bytes) -> object:
    """Return the JSON value; half a character and a number that JSON lacks as a capture has them.

    Raises `JsonError`.
    """
    try:
        return loads_strictly(raw)
    except JsonError:
        pass
    try:
        return loads_strictly(dumps(loads(raw)))
    except RecursionError:
        raise JsonError("nested too deeply") from None


def _no_response(answer: object) -> str | None:
    """Say what makes an answer unusable; None for a response, one that failed included."""
    if not isinstance(answer, dict):
        return f"it is {type(answer).__name__}, not an object"
    if answer.get("status") == "failed":
        answer.setdefault("output", [])
        return None
    output = answer.get("output")
    if not isinstance(output, list):
        return "it has no output"
    for number, item in enumerate(output):
        if not isinstance(item, dict) or not isinstance(item.get("type"), str):
            return f"item {number} of its output has no type"
        if item["type"] == "message" and not isinstance(item.get("content"), list):
            return f"message {number} of its output has no content"
    return None


def _reason(answer: Mapping[str, Any]) -> str:
    error = answer.get("error")
    return str(error.get("message") if isinstance(error, Mapping) else error)


def _text(raw: bytes) -> str:
    return raw[:_BODY_LIMIT].decode("utf-8", "replace")
