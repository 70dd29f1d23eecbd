"""A function call of the model in, the text that the model sees as its output out.

Whatever is wrong with a call is said to the model, which can mend it: a tool that does not exist,
arguments that are no JSON object, an error of the tool. Only a resources server that cannot be
reached ends the rollout.
"""

import re
import time
from collections.abc import Mapping, Sequence
from http.cookies import SimpleCookie
from typing import Any

from nemo_gym.server_utils import ServerClient
from nemo_gym.servers.recorder import ToolCall
from nemo_gym.telemetry.work import tool_span
from nemo_gym.wire.json import JsonError, loads_strictly

__all__ = ["ToolBox", "tool_names"]

# Routes of every server that are not tools, however a model may come upon their names.
_NOT_TOOLS = frozenset({"aggregate_metrics", "health", "run", "seed_session", "verify"})
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
_NO_ARGUMENTS = frozenset({"", "null"})


def tool_names(tools: Sequence[object]) -> frozenset[str]:
    """Return the names of the functions among the tools of a create request."""
    return frozenset(
        str(tool["name"])
        for tool in tools
        if isinstance(tool, Mapping) and tool.get("type") == "function" and "name" in tool
    )


class ToolBox:
    """The tools of one rollout: routes of its resources server, under the rollout's session."""

    def __init__(
        self,
        client: ServerClient,
        server_name: str,
        declared: frozenset[str],
        cookies: SimpleCookie,
    ) -> None:
        self.cookies = cookies
        """Grows with what the tools set."""
        self._client = client
        self._server_name = server_name
        self._declared = declared

    async def call(self, item: Mapping[str, Any]) -> ToolCall:
        """Run one `function_call` item."""
        started_at, began = time.time(), time.perf_counter()
        name, arguments = str(item.get("name")), str(item.get("arguments") or "")
        with tool_span(name) as made:
            output, error = await self._output(name, arguments)
            made.end(error)
        took_ms = (time.perf_counter() - began) * 1000
        call_id = str(item.get("call_id") or item.get("id"))
        return ToolCall(call_id, name, arguments, output, started_at, took_ms, error, has_span=True)

    async def _output(self, name: str, arguments: str) -> tuple[str, str | None]:
        if not self._may_be_called(name):
            return self._unknown(name), "unknown_tool"
        try:
            body = _arguments(arguments)
        except ValueError as exc:
            return f"Error: {exc}. Call {name} again with a JSON object.", "bad_arguments"
        reply = await self._client.post(
            server_name=self._server_name, url_path=f"/{name}", json=body, cookies=self.cookies
        )
        self.cookies.update(reply.cookies)
        text = await reply.text()
        if reply.ok:
            return text, None
        if reply.status == 404 and not self._declared:
            return self._unknown(name), "unknown_tool"
        return f"Error: {name} answered {reply.status}: {text}", f"http_{reply.status}"

    def _may_be_called(self, name: str) -> bool:
        if name in _NOT_TOOLS or _NAME.fullmatch(name) is None:
            return False
        return not self._declared or name in self._declared

    def _unknown(self, name: str) -> str:
        known = ", ".join(sorted(self._declared)) or "none"
        return f"Error: there is no tool {name!r}. The tools are: {known}."


def _arguments(text: str) -> bytes:
    """Return the JSON object as bytes, as the model wrote it; raises `ValueError`."""
    if text.strip() in _NO_ARGUMENTS:
        return b"{}"
    try:
        value = loads_strictly(text)
    except JsonError as exc:
        raise ValueError(f"the arguments are not valid JSON ({exc})") from None
    if not isinstance(value, dict):
        raise ValueError(  # noqa: TRY004 - one kind of error for arguments that are no object
            f"the arguments are not a JSON object but {type(value).__name__}"
        )
    return text.encode()
