"""The mcqa server over its own app: rewards, what comes back, rows that cannot be judged."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.base_resources_server import BaseVerifyRequest
from nemo_gym.resources_servers.mcqa.app import Mcqa, McqaVerifyResponse
from nemo_gym.resources_servers.mcqa.extract import MODES, extract
from support.in_cell import InCell

DATA = Path(__file__).parents[2] / "src/nemo_gym/resources_servers/mcqa/data"
TREE = {"mcqa": {"resources_servers": {"mcqa": {"entrypoint": "app.py"}}}}


@pytest.fixture
async def cell() -> AsyncIterator[InCell]:
    cell = InCell(TREE)
    yield cell
    await cell.aclose()


def response(*texts: str) -> dict[str, Any]:
    return {
        "output": [
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": text}],
            }
            for text in texts
        ]
    }


def row(answer: str, **more: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": "Capital of France?"},
        "options": {"A": "Rome", "B": "Paris"},
        "expected_answer": "B",
        "response": response(answer),
        **more,
    }


async def verify(cell: InCell, body: Any) -> dict[str, Any]:
    reply = await cell.client.post("mcqa", "/verify", json=body)
    answer: dict[str, Any] = await reply.json()
    return {"status": reply.status, **answer}


@pytest.mark.parametrize(
    ("answer", "reward", "letter", "how"),
    [
        ("Answer: B", 1.0, "B", "answer_line"),
        (r"\boxed{A}", 0.0, "A", "boxed"),
        ("b", 1.0, "B", "letter"),
        ("No idea.", 0.0, None, None),
        ("Answer: C", 0.0, None, "answer_line"),
        ("", 0.0, None, None),
    ],
)
async def test_the_reward_is_for_the_right_option(
    cell: InCell, answer: str, reward: float, letter: str | None, how: str | None
) -> None:
    verified = await verify(cell, row(answer))

    assert verified["reward"] == reward
    assert verified["correct"] is (reward == 1.0)
    assert verified["answered"] is (letter is not None)
    assert verified["extracted_answer"] == letter
    assert verified["extracted_from"] == how


async def test_the_request_comes_back_byte_for_byte_with_the_verdict_added(cell: InCell) -> None:
    raw = json.dumps(row("Answer: B", mine=[1.50, None], reward=7), indent=1).encode()

    reply = await cell.client.post("mcqa", "/verify", json=raw)

    text = (await reply.read()).decode()
    assert '"mine":[\n  1.5,\n  null\n ]' in text
    verified = json.loads(text)
    assert verified["reward"] == 1.0
    assert {**verified, "reward": 7} == {
        **json.loads(raw),
        **{key: verified[key] for key in verified.keys() - json.loads(raw).keys()},
    }


async def test_only_the_last_message_of_the_model_is_the_answer(cell: InCell) -> None:
    body = row("")
    body["response"] = response("Answer: A", "Answer: B")
    body["response"]["output"] += [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "message", "role": "user", "content": "Answer: A"},
    ]

    assert (await verify(cell, body))["reward"] == 1.0


@pytest.mark.parametrize(
    "options",
    [{"a": "Rome", "b": "Paris"}, [{"A": "Rome"}, {"B": "Paris"}], ["Rome", "Paris"]],
    ids=["by-letter", "list-of-letters", "list-of-texts"],
)
async def test_options_may_be_written_in_three_ways(cell: InCell, options: object) -> None:
    assert (await verify(cell, row("Answer: B", options=options)))["reward"] == 1.0


@pytest.mark.parametrize("place", ["verifier_metadata", "template_metadata"])
async def test_keys_may_stand_in_the_metadata(cell: InCell, place: str) -> None:
    body = row("<a>paris</a>", **{place: {"output_regex": "<a>(.*)</a>", "expected_answer": "b"}})
    del body["expected_answer"]

    assert (await verify(cell, body))["extracted_from"] == "regex"


async def test_the_grading_mode_of_the_row_counts(cell: InCell) -> None:
    strict = await verify(cell, row("It is B. Answer: B", grading_mode="boxed"))
    loose = await verify(cell, row("It is Paris", grading_mode="letter_or_text"))

    assert (strict["reward"], loose["reward"]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"expected_answer": None}, "expected_answer is None"),
        ({"expected_answer": "E"}, "expected_answer is 'E', which is no option (A, B)"),
        ({"options": None}, "options is 'None'"),
        ({"options": {"A": "Rome"}}, "options is"),
        ({"options": {"A1": "Rome", "B": "x"}}, "options is"),
        ({"grading_mode": "guess"}, "grading_mode is 'guess'"),
        ({"output_regex": "("}, "output_regex is '('"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
async def test_a_row_that_cannot_be_judged_is_an_error_not_a_reward(
    cell: InCell, change: dict[str, Any], said: str
) -> None:
    verified = await verify(cell, row("Answer: B", **change))

    assert verified["status"] == 500
    assert said in json.dumps(verified["error"], ensure_ascii=False)
    assert "reward" not in verified


async def test_the_validated_method_says_the_same_as_the_route(cell: InCell) -> None:
    server = cell.servers["mcqa"]
    assert isinstance(server, Mcqa)
    body = row("Answer: B", subject="geography")

    by_route = await verify(cell, body)
    request = type(server).verify.__annotations__["body"].model_validate(body)
    by_method = (await server.verify(request)).model_dump()

    ours = ("reward", "correct", "answered", "extracted_answer", "extracted_from")
    assert {key: by_method[key] for key in ours} == {key: by_route[key] for key in ours}


async def test_a_class_that_overrides_verify_is_asked(cell: InCell) -> None:
    class Generous(Mcqa):
        async def verify(self, body: BaseVerifyRequest) -> McqaVerifyResponse:
            judged = await super().verify(body)
            return judged.model_copy(update={"reward": 0.5})

    server = Generous(config=cell.servers["mcqa"].config, server_client=cell.client)  # type: ignore[arg-type]
    cell.add_app("generous", server.setup_webserver())

    reply = await cell.client.post("generous", "/verify", json=row("B"))

    assert (await reply.json())["reward"] == 0.5


async def test_the_reward_is_told_under_its_subject_too(cell: InCell) -> None:
    answered = await verify(cell, row("Answer: B", subject="geography"))
    plain = await verify(cell, row("Answer: B"))

    assert answered["reward[subject=geography]"] == answered["reward"]
    assert not any("subject=" in key for key in plain)


async def test_no_row_has_to_travel_for_the_metrics(cell: InCell) -> None:
    reply = await cell.client.get("mcqa", "/aggregate_metrics")

    assert await reply.json() == {"custom": False}


@pytest.mark.parametrize("name", ["example.jsonl", "demo.jsonl"])
async def test_every_row_of_the_data_can_be_won_and_lost(cell: InCell, name: str) -> None:
    rows = [json.loads(line) for line in (DATA / name).read_text().splitlines()]
    assert len(rows) >= 20
    assert len({task["id"] for task in rows}) == len(rows)
    for task in rows:
        right = task["expected_answer"]
        wrong = next(letter for letter in task["options"] if letter != right)
        rewards = [
            (await verify(cell, {**task, "response": response(f"\\boxed{{{letter}}}")}))["reward"]
            for letter in (right, wrong)
        ]
        assert rewards == [1.0, 0.0], task["id"]
        assert len(set(task["options"].values())) == len(task["options"])
        assert task["grading_mode"] in MODES


def test_the_right_answers_are_spread_over_the_letters() -> None:
    for name in ("example.jsonl", "demo.jsonl"):
        rows = [json.loads(line) for line in (DATA / name).read_text().splitlines()]
        right = [task["expected_answer"] for task in rows]

        assert max(right.count(letter) for letter in "ABCD") <= len(right) / 3


def test_every_option_of_the_demo_can_be_named_by_its_text() -> None:
    for line in (DATA / "demo.jsonl").read_text().splitlines():
        task = json.loads(line)
        for letter, text in task["options"].items():
            assert extract(text, task["options"], "letter_or_text").letter == letter, task["id"]
