"""Whole rollouts of workplace_tools over its app and with the built-in agent."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from starlette.types import Receive, Scope, Send

from nemo_gym.resources_servers.workplace_tools.app import WorkplaceTools
from nemo_gym.servers.raw import send_json
from support.in_cell import InCell
from support.workplace import ROWS, TREE, Rollout, actions_of, row_of

SEND = ("send_email", {"to": ["a@b.example"], "subject": "S", "body": "B"})


@pytest.fixture
async def cell() -> AsyncIterator[InCell]:
    cell = InCell(TREE)
    yield cell
    await cell.aclose()


def server_of(cell: InCell) -> WorkplaceTools:
    server = cell.servers["workplace_tools"]
    assert isinstance(server, WorkplaceTools)
    return server


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
async def test_the_expected_actions_of_every_row_win_and_doing_nothing_loses(
    cell: InCell, row: dict[str, Any]
) -> None:
    solved, idle = Rollout(cell.client, row), Rollout(cell.client, row)
    for rollout in (solved, idle):
        assert await rollout.seed() == (200, {})
    for name, arguments in actions_of(row):
        status, answer = await solved.tool(name, arguments)
        assert status == 200, answer

    (_, won), (_, lost) = await solved.verify(), await idle.verify()

    assert (won["reward"], won["differences"]) == (1.0, [])
    assert won["num_tool_calls"] == len(actions_of(row))
    assert lost["reward"] == 0.0
    assert lost["num_differences"] == len(lost["differences"]) > 0
    assert {key: won[key] for key in row} == row


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
async def test_one_change_too_many_loses_every_row(cell: InCell, row: dict[str, Any]) -> None:
    rollout = Rollout(cell.client, row)
    await rollout.seed()
    for name, arguments in [*actions_of(row), SEND]:
        await rollout.tool(name, arguments)

    _, verified = await rollout.verify()

    assert verified["reward"] == 0.0
    assert any("was not asked for" in line or "mail-" in line for line in verified["differences"])


async def test_calls_that_fail_and_detours_cost_nothing(cell: InCell) -> None:
    rollout = Rollout(cell.client, row_of(("cancel_event", {"event_id": "event-1"})))
    await rollout.seed()

    failed = [
        await rollout.tool("cancel_event", {"event_id": "event-77"}),
        await rollout.tool("send_email", {"to": ["nobody"], "subject": "S", "body": "B"}),
        await rollout.tool("send_email", {"to": ["a@b.example"], "subject": "S"}),
        await rollout.tool("cancel_event", {"event": "event-1"}),
    ]
    await rollout.tool("update_event", {"event_id": "event-3", "title": "X"})
    await rollout.tool("update_event", {"event_id": "event-3", "title": "Dentist"})
    await rollout.tool("cancel_event", {"event_id": "event-1"})
    _, verified = await rollout.verify()

    assert [status for status, _ in failed] == [400] * 4
    assert [answer["error"] for _, answer in failed] == [
        "there is no event 'event-77'; ids look like event-1",
        "'nobody' is not an email address; find_contacts knows addresses",
        "send_email: Object missing required field `body`",
        "cancel_event: Object contains unknown field `event`",
    ]
    assert (verified["reward"], verified["num_tool_errors"]) == (1.0, 4)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"x"', b"\xff"])
async def test_arguments_that_are_no_object_are_told(cell: InCell, body: bytes) -> None:
    rollout = Rollout(cell.client, row_of())
    await rollout.seed()

    status, answer = await rollout.call("/get_email", body)

    assert status == 400
    assert answer["error"].startswith("get_email: ")


async def test_an_unknown_tool_is_told_with_the_known_ones(cell: InCell) -> None:
    rollout = Rollout(cell.client, row_of(("delete_email", {"email_id": "mail-3"})))
    await rollout.seed()
    await rollout.tool("delete_email", {"email_id": "mail-3"})

    status, answer = await rollout.tool("archive_everything", {})
    _, verified = await rollout.verify()

    assert status == 404
    assert answer["error"].startswith("there is no tool 'archive_everything'; the tools are search")
    assert verified["reward"] == 1.0


async def test_rollouts_do_not_see_each_other(cell: InCell) -> None:
    async def run(row: dict[str, Any]) -> float:
        rollout = Rollout(cell.client, row)
        await rollout.seed()
        for name, arguments in actions_of(row):
            await asyncio.sleep(0)
            await rollout.tool(name, arguments)
        return float((await rollout.verify())[1]["reward"])

    rows = ROWS * 4
    random.Random(0).shuffle(rows)  # noqa: S311 - an order, no secret

    rewards = await asyncio.gather(*map(run, rows))

    assert rewards == [1.0] * len(rows)
    assert len(server_of(cell).sessions) == 0


async def test_a_rollout_that_was_verified_has_no_state_any_more(cell: InCell) -> None:
    rollout = Rollout(cell.client, ROWS[0])
    await rollout.seed()
    await rollout.verify()

    again, tool = await rollout.verify(), await rollout.tool("list_events", {})

    assert (again[0], tool[0]) == (409, 409)
    assert "call /seed_session first" in json.dumps([again[1], tool[1]])
    assert "reward" not in again[1]


async def test_seeding_again_starts_afresh(cell: InCell) -> None:
    rollout = Rollout(cell.client, ROWS[0])
    await rollout.seed()
    await rollout.tool(*SEND)
    await rollout.seed()
    for name, arguments in actions_of(ROWS[0]):
        await rollout.tool(name, arguments)

    assert (await rollout.verify())[1]["reward"] == 1.0
    assert len(server_of(cell).sessions) == 0


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"expected_actions": None}, "expected_actions is missing"),
        ({"expected_actions": ["x"]}, "expected_actions[0] is 'x'"),
        ({"expected_actions": [{"tool": "fly"}]}, "expected_actions[0] fails: there is no tool"),
        (
            {"expected_actions": [{"tool": "get_email", "arguments": {"email_id": "mail-99"}}]},
            "expected_actions[0] fails: there is no email 'mail-99'",
        ),
        ({"free_text": {"emails.to": ["x"]}}, "free_text is"),
        ({"free_text": {"emails.body": "x"}}, "free_text is"),
        ({"changed_state": {"files": {}}}, "changed_state is"),
    ],
)
async def test_a_row_that_cannot_be_won_is_an_error_before_any_model_call(
    cell: InCell, metadata: dict[str, Any], said: str
) -> None:
    row = row_of()
    row["verifier_metadata"] |= metadata

    status, answer = await Rollout(cell.client, row).seed()

    assert status == 500
    assert said in answer["error"]["message"]


async def test_words_that_the_expected_actions_do_not_write_are_an_error(cell: InCell) -> None:
    row = row_of(SEND, free_text={"emails.body": ["Friday"]})

    status, answer = await Rollout(cell.client, row).seed()

    assert status == 500
    assert "does not contain 'Friday'" in answer["error"]["message"]


class Actor:
    """A model that makes the calls it was given, one a turn, then says that it is done."""

    def __init__(self, calls: list[tuple[str, dict[str, Any]]]) -> None:
        self.calls = calls
        self.seen: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = orjson.loads((await receive())["body"])
        outputs = [item for item in asked["input"] if item.get("type") == "function_call_output"]
        self.seen = [item["output"] for item in outputs]
        if len(outputs) < len(self.calls):
            name, arguments = self.calls[len(outputs)]
            item: dict[str, Any] = {
                "type": "function_call",
                "call_id": f"c{len(outputs)}",
                "name": name,
                "arguments": json.dumps(arguments),
            }
        else:
            text = {"type": "output_text", "text": "Done."}
            item = {"type": "message", "role": "assistant", "content": [text]}
        await send_json(send, 200, {"id": "r", "object": "response", "output": [item]})


AGENT = {
    "agent": {
        "responses_api_agents": {
            "simple_agent": {
                "resources_server": {"type": "resources_servers", "name": "workplace_tools"},
                "model_server": {"type": "responses_api_models", "name": "policy_model"},
            }
        }
    }
}


@pytest.mark.parametrize("row", ROWS[-5:], ids=lambda row: row["id"])
async def test_the_built_in_agent_wins_with_the_right_calls(row: dict[str, Any]) -> None:
    cell = InCell({**TREE, **AGENT})
    model = Actor([("search_emails", {"query": "friday"}), *actions_of(row), ("fly", {})])
    cell.add_app("policy_model", model)

    reply = await cell.client.post("agent", "/run", json=row)

    verified = await reply.json()
    assert (reply.status, verified["reward"]) == (200, 1.0), verified
    assert model.seen[-1].startswith("Error: there is no tool 'fly'")
    assert json.loads(model.seen[0])["total"] >= 1
    await cell.aclose()
