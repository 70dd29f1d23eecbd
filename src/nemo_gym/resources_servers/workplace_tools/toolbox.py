"""The tools by name: JSON arguments in, JSON results out; and what a model is told of them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from nemo_gym.resources_servers.workplace_tools.arguments import Arguments
from nemo_gym.resources_servers.workplace_tools.calendar_tools import CALENDAR_TOOLS
from nemo_gym.resources_servers.workplace_tools.contact_tools import CONTACT_TOOLS
from nemo_gym.resources_servers.workplace_tools.mail_tools import MAIL_TOOLS
from nemo_gym.resources_servers.workplace_tools.workplace import ToolMistake, Workplace

__all__ = ["TOOLS", "Tool", "call_tool", "tool_schemas"]


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool."""

    name: str
    arguments: type[Arguments]
    run: Callable[..., Any]
    decode: Callable[[bytes], Any]


def call_tool(office: Workplace, name: str, arguments: bytes) -> object:
    """Run a tool on `office` and return its result; an unsuccessful one changes nothing.

    Raises `ToolMistake` for an unknown tool, and for arguments that do not fit or cannot work.
    """
    tool = TOOLS.get(name)
    if tool is None:
        raise ToolMistake(f"there is no tool {name!r}; the tools are {', '.join(TOOLS)}")
    try:
        asked = tool.decode(arguments or b"{}")
    except (msgspec.DecodeError, RecursionError) as problem:
        raise ToolMistake(f"{name}: {problem}") from None
    result: object = tool.run(office, asked)
    return result


def tool_schemas() -> list[dict[str, Any]]:
    """Return the tools as a Responses API create request lists them."""
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": (tool.arguments.__doc__ or "").strip(),
            "parameters": _parameters(tool.arguments),
            "strict": False,
        }
        for tool in TOOLS.values()
    ]


def _parameters(arguments: type[Arguments]) -> dict[str, Any]:
    """Return a JSON schema without references or titles."""
    (_,), components = msgspec.json.schema_components([arguments])
    schema = components[arguments.__name__]
    known = ("type", "properties", "required", "additionalProperties")
    return {name: _plain(schema[name]) for name in known if name in schema}


def _plain(value: Any) -> Any:
    """Leave out null as a choice: a model leaves an argument out instead."""
    if isinstance(value, Mapping):
        plain = {key: _plain(each) for key, each in value.items()}
        choices = plain.get("anyOf")
        if isinstance(choices, list):
            others = [choice for choice in choices if choice != {"type": "null"}]
            if len(others) == 1:
                del plain["anyOf"]
                plain = {**others[0], **plain}
        if isinstance(plain.get("enum"), list):
            plain["enum"] = [each for each in plain["enum"] if each is not None]
            plain.setdefault("type", "string")
        if plain.get("default", "") is None:
            del plain["default"]
        return plain
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _tool(arguments: type[Arguments], run: Callable[..., Any]) -> Tool:
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", arguments.__name__).lower()
    return Tool(name, arguments, run, msgspec.json.Decoder(arguments).decode)


TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (_tool(*each) for each in (*MAIL_TOOLS, *CALENDAR_TOOLS, *CONTACT_TOOLS))
}
