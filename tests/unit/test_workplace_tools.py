"""What each tool does to the workplace, and what it refuses."""

import json
from typing import Any

import pytest

from nemo_gym.resources_servers.workplace_tools.toolbox import TOOLS, call_tool, tool_schemas
from nemo_gym.resources_servers.workplace_tools.workplace import ToolMistake, Workplace
from support.workplace import OFFICE, ROWS

ME = OFFICE.me


@pytest.fixture
def office() -> Workplace:
    return OFFICE.copy()


def call(office: Workplace, name: str, /, **arguments: Any) -> Any:
    return call_tool(office, name, json.dumps(arguments).encode())


def found(office: Workplace, **asked: Any) -> list[str]:
    return [mail["id"] for mail in call(office, "search_emails", **asked)["emails"]]


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ({"query": "TOOLS weekly"}, ["mail-3", "mail-4"]),
        ({"sender": "lena", "until": "2026-02-28"}, ["mail-12"]),
        ({"recipient": "mei.tanaka"}, ["mail-2", "mail-13"]),
        ({"folder": "sent"}, ["mail-14", "mail-13"]),
        ({"folder": "trash"}, []),
        ({"since": "2026-03-07"}, ["mail-6", "mail-16"]),
        ({"query": "no such words"}, []),
        ({"query": "", "limit": 1}, ["mail-6"]),
        ({"query": "laptop", "sender": None, "folder": None}, ["mail-7"]),
    ],
)
def test_search_finds_newest_first(
    office: Workplace, asked: dict[str, Any], ids: list[str]
) -> None:
    assert found(office, **asked) == ids


def test_search_says_how_many_there_are_and_shows_no_bodies(office: Workplace) -> None:
    answer = call(office, "search_emails", limit=2)

    assert (answer["total"], len(answer["emails"])) == (16, 2)
    assert "body" not in answer["emails"][0]


def test_a_reply_goes_to_the_sender_alone(office: Workplace) -> None:
    sent = call(office, "reply_to_email", email_id="mail-2", body="Yes")["sent"]

    assert sent["to"] == ["lena.okafor@northwind.example"]
    assert (sent["cc"], sent["subject"]) == ([], "Re: Design review on Thursday")
    assert (sent["folder"], sent["from"], sent["in_reply_to"]) == ("sent", ME, "mail-2")
    assert office.emails[sent["id"]] is sent


def test_a_reply_to_all_goes_to_everybody_but_oneself(office: Workplace) -> None:
    sent = call(office, "reply_to_email", email_id="mail-2", body="Yes", reply_all=True)["sent"]

    assert sent["cc"] == ["tom.ferris@northwind.example", "mei.tanaka@northwind.example"]


def test_a_reply_to_a_sent_email_goes_to_whom_it_went(office: Workplace) -> None:
    sent = call(office, "reply_to_email", email_id="mail-13", body="Thanks")["sent"]
    again = call(office, "reply_to_email", email_id=sent["id"], body="And again")["sent"]

    assert sent["to"] == again["to"] == ["mei.tanaka@northwind.example"]
    assert again["subject"] == "Re: February figures?"


def test_a_deleted_email_is_in_the_trash_and_cannot_be_deleted_again(office: Workplace) -> None:
    call(office, "delete_email", email_id="mail-3")

    assert found(office, query="tools weekly") == ["mail-4"]
    assert found(office, folder="trash") == ["mail-3"]
    with pytest.raises(ToolMistake, match="in the trash already"):
        call(office, "delete_email", email_id="mail-3")


def test_a_new_event_says_what_it_overlaps(office: Workplace) -> None:
    answer = call(
        office, "create_event", title="T", start="2026-03-09T10:30", end="2026-03-09T11:00:00"
    )

    assert answer["overlaps"] == ["event-1"]
    assert answer["created"]["end"] == "2026-03-09T11:00"
    assert answer["created"]["id"] == "event-11"


def test_a_new_start_keeps_the_length(office: Workplace) -> None:
    moved = call(office, "update_event", event_id="event-9", start="2026-03-19T09:00")["updated"]

    assert (moved["start"], moved["end"]) == ("2026-03-19T09:00", "2026-03-19T11:00")
    assert moved["title"] == "Quarterly review"


def test_an_id_is_never_given_twice(office: Workplace) -> None:
    call(office, "cancel_event", event_id="event-10")
    times = {"start": "2026-04-01T09:00", "end": "2026-04-01T10:00"}

    made = call(office, "create_event", title="T", **times)["created"]

    assert made["id"] == "event-11"


def test_contacts_are_found_by_words_of_any_field(office: Workplace) -> None:
    def names(query: str) -> list[str]:
        contacts = call(office, "find_contacts", query=query)["contacts"]
        return [contact["name"] for contact in contacts]

    assert names("quay partner") == ["Rosa Lind", "Tomas Ferreira"]
    assert names("petra") == ["Petra Brandt", "Petra Brandt"]
    assert len(names("")) == len(office.contacts)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("get_email", {"email_id": "mail-99"}, "there is no email 'mail-99'"),
        ("send_email", {"to": [], "subject": "S", "body": "B"}, "length >= 1"),
        ("send_email", {"to": "a@b.example", "subject": "S", "body": "B"}, "Expected `array`"),
        ("send_email", {"to": ["a@b.example"], "subject": "", "body": "B"}, "length >= 1"),
        ("search_emails", {"folder": "archive"}, "Invalid enum value 'archive'"),
        ("search_emails", {"since": "Friday"}, "'Friday' is not a date"),
        ("create_event", {"title": "T", "start": "x", "end": "y"}, "'x' is not a time"),
        (
            "create_event",
            {"title": "T", "start": "2026-03-09", "end": "2026-03-10"},
            "has no time of day",
        ),
        (
            "create_event",
            {"title": "T", "start": "2026-03-09T10:00", "end": "2026-03-09T10:00"},
            "not after its start",
        ),
        ("update_event", {"event_id": "event-3", "title": "Dentist"}, "nothing in event-3 would"),
        (
            "update_event",
            {"event_id": "event-3", "remove_attendees": ["a@b.example"]},
            "does not attend",
        ),
        ("cancel_event", {"event_id": "3"}, "ids look like event-1"),
        ("add_contact", {"name": "X", "email": "INFO@cafe-linde.example"}, "Cafe Linde (contact-9"),
        ("add_contact", {"name": "X", "email": "x"}, "is not an email address"),
        ("update_contact", {"contact_id": "contact-1", "phone": "+49 30 5550 101"}, "nothing in"),
        ("delete_contact", {"contact_id": "contact-99"}, "there is no contact"),
    ],
)
def test_what_cannot_work_is_told_and_changes_nothing(
    office: Workplace, name: str, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ToolMistake) as told:
        call(office, name, **arguments)

    assert said in str(told.value)
    assert office == OFFICE


def test_the_rows_offer_exactly_the_tools_that_there_are() -> None:
    assert {json.dumps(row["responses_create_params"]["tools"]) for row in ROWS} == {
        json.dumps(tool_schemas())
    }
    assert len({row["id"] for row in ROWS}) == len(ROWS) >= 20


def test_a_schema_says_what_it_takes_in_plain_words() -> None:
    for schema in tool_schemas():
        text = json.dumps(schema)
        assert schema["description"].endswith(".")
        assert not any(word in text for word in ("$ref", "null", "anyOf"))
        properties = schema["parameters"]["properties"]
        assert set(schema["parameters"]["required"]) <= set(properties)
    assert [schema["name"] for schema in tool_schemas()] == list(TOOLS)
