"""The workplace, its rows, and a client that keeps the session of one rollout."""

import json
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

from nemo_gym.resources_servers.workplace_tools.workplace import Workplace
from nemo_gym.transport.server_client import ServerClient

__all__ = ["OFFICE", "ROWS", "TREE", "Rollout", "actions_of", "row_of"]

_DATA = Path(__file__).parents[2] / "src/nemo_gym/resources_servers/workplace_tools/data"
OFFICE = Workplace.of(json.loads((_DATA / "workplace.json").read_text()))
ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in (_DATA / "example.jsonl").read_text().splitlines()
]
TREE = {"workplace_tools": {"resources_servers": {"workplace_tools": {"entrypoint": "app.py"}}}}


def row_of(*actions: tuple[str, dict[str, Any]], **metadata: Any) -> dict[str, Any]:
    """Return a row that these actions solve."""
    expected = [{"tool": tool, "arguments": arguments} for tool, arguments in actions]
    return {
        "responses_create_params": {"input": "x"},
        "verifier_metadata": {"expected_actions": expected, **metadata},
    }


def actions_of(row: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that solve a row."""
    expected = row["verifier_metadata"]["expected_actions"]
    return [(action["tool"], action["arguments"]) for action in expected]


class Rollout:
    """One rollout's calls to the server, by its cookies."""

    def __init__(self, client: ServerClient, row: dict[str, Any]) -> None:
        self.row = row
        self.cookies = SimpleCookie()
        self._client = client

    async def call(self, path: str, body: Any) -> tuple[int, Any]:
        """Call a route; return status and decoded answer."""
        reply = await self._client.post("workplace_tools", path, json=body, cookies=self.cookies)
        self.cookies.update(reply.cookies)
        return reply.status, await reply.json()

    async def seed(self) -> tuple[int, Any]:
        """Begin the rollout."""
        return await self.call("/seed_session", self.row)

    async def tool(self, name: str, arguments: dict[str, Any]) -> tuple[int, Any]:
        """Call a tool."""
        return await self.call(f"/{name}", arguments)

    async def verify(self) -> tuple[int, Any]:
        """End the rollout."""
        return await self.call("/verify", {**self.row, "response": {"output": []}})
