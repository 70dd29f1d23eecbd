"""What counts as the same state, what a difference reads like, and how long state is kept."""

import json
from typing import Any

import pytest

from nemo_gym.resources_servers.workplace_tools.row import Task
from nemo_gym.resources_servers.workplace_tools.sessions import Sessions
from nemo_gym.resources_servers.workplace_tools.toolbox import call_tool
from support.workplace import OFFICE, row_of

TO = ["mei.tanaka@northwind.example", "lena.okafor@northwind.example"]
SEND = ("send_email", {"to": TO, "subject": "Lunch", "body": "Lunch at one?"})
TASK = Task.of(row_of(), OFFICE)


def judged(
    expected: list[tuple[str, dict[str, Any]]],
    done: list[tuple[str, dict[str, Any]]],
    **metadata: Any,
) -> list[str]:
    task = Task.of(row_of(*expected, **metadata), OFFICE)
    office = task.before.copy()
    for name, arguments in done:
        call_tool(office, name, json.dumps(arguments).encode())
    return task.judge(office)


def sent(**changes: Any) -> list[tuple[str, dict[str, Any]]]:
    return [("send_email", {**SEND[1], **changes})]


@pytest.mark.parametrize(
    "changes",
    [
        {"to": TO[::-1]},
        {"to": [TO[0].upper(), TO[1], TO[1]]},
        {"subject": "LUNCH."},
        {"body": "  lunch\nat one "},
    ],
)
def test_spelling_that_means_the_same_is_the_same(changes: dict[str, Any]) -> None:
    assert judged([SEND], sent(**changes)) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"to": TO[:1]}, "mail-17: to is "),
        ({"cc": ["a@b.example"]}, "mail-17: cc is ['a@b.example'], and should be []"),
        ({"subject": "Dinner"}, "mail-17: subject is 'Dinner', and should be 'Lunch'"),
        ({"body": "Lunch at two?"}, "mail-17: body is 'Lunch at two?'"),
    ],
)
def test_one_wrong_email_is_told_by_field(changes: dict[str, Any], said: str) -> None:
    (line,) = judged([SEND], sent(**changes))

    assert line.startswith(said)


def test_what_is_missing_and_what_nobody_asked_for_are_told_apart() -> None:
    done = [*sent(subject="One"), *sent(subject="Two")]

    lines = judged([SEND], done)

    assert [line.partition(":")[0] for line in lines] == [
        "missing email",
        "email that was not asked for",
        "email that was not asked for",
    ]


def test_twice_is_not_once() -> None:
    assert len(judged([SEND], [SEND, SEND])) == 1
    assert len(judged([SEND, SEND], [SEND])) == 1


def test_an_answer_to_an_email_that_was_made_may_name_another_id() -> None:
    one, two = sent(subject="One"), sent(subject="Two")

    def reply(email_id: str) -> list[tuple[str, dict[str, Any]]]:
        return [("reply_to_email", {"email_id": email_id, "body": "And more"})]

    expected = [*one, *two, *reply("mail-17")]

    assert judged(expected, [*two, *one, *reply("mail-18")]) == []
    assert judged(expected, [*two, *one, *reply("mail-17")]) != []


def test_a_telephone_number_is_its_digits() -> None:
    def update(phone: str) -> tuple[str, dict[str, Any]]:
        return ("update_contact", {"contact_id": "contact-6", "phone": phone})

    assert judged([update("+46 8 555 0142")], [update("+46-8-5550142")]) == []
    assert len(judged([update("+46 8 555 0142")], [update("+46 8 555 0143")])) == 1


def test_free_text_must_only_contain_its_words() -> None:
    free = {"free_text": {"emails.body": ["one o'clock"]}}
    expected = sent(body="At one o'clock.")

    assert judged(expected, sent(body="Dear all, ONE  O'CLOCK is fine."), **free) == []
    assert judged(expected, sent(body="At two."), **free) == [
        'mail-17: its text does not contain "one o\'clock"'
    ]
    assert judged(expected, sent(body="One o'clock", subject="X"), **free) != []


def test_a_row_may_begin_with_another_state() -> None:
    state = {
        "emails": {"mail-1": None, "mail-2": {"subject": "Changed"}},
        "contacts": {"contact-90": {"name": "N", "email": "n@o.example", "phone": ""}},
    }

    task = Task.of(row_of(changed_state=state), OFFICE)

    assert "mail-1" not in task.before.emails
    assert task.before.emails["mail-2"]["subject"] == "Changed"
    assert task.before.emails["mail-2"]["body"] == OFFICE.emails["mail-2"]["body"]
    assert task.before.contacts["contact-90"]["id"] == "contact-90"
    assert "mail-1" in OFFICE.emails


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_state_that_nothing_uses_is_dropped() -> None:
    clock = Clock()
    sessions = Sessions(10.0, clock)
    sessions.begin("idle", TASK)
    clock.now = 6.0
    sessions.begin("busy", TASK)
    clock.now = 12.0
    assert sessions.use("busy") is not None
    clock.now = 20.0

    sessions.begin("new", TASK)

    assert sessions.use("idle") is None
    assert sessions.use("busy") is not None
    assert len(sessions) == 2


def test_memory_follows_the_rollouts_at_work() -> None:
    sessions = Sessions(10.0, Clock())

    for number in range(1000):
        sessions.begin(str(number), TASK)
        if number >= 3:
            sessions.end(str(number - 3))

    assert len(sessions) == 3
