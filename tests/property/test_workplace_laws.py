"""Laws of the workplace: copies are apart, order does not matter, nothing is lost on the way."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.resources_servers.workplace_tools.compare import Looseness, differences
from nemo_gym.resources_servers.workplace_tools.toolbox import TOOLS, call_tool
from nemo_gym.resources_servers.workplace_tools.workplace import ToolMistake, Workplace
from support.workplace import OFFICE

_EXACT = Looseness()
_PEOPLE = ["mei.tanaka@northwind.example", "lena.okafor@northwind.example", "a@b.example"]

Action = tuple[str, dict[str, Any]]

_words = st.sampled_from(["Lunch", "Release", "Thursday at ten"])
_mails = st.sampled_from(sorted(OFFICE.emails))
_events = st.sampled_from(sorted(OFFICE.events))
_contacts = st.sampled_from(sorted(OFFICE.contacts))
_changes: st.SearchStrategy[Action] = st.one_of(
    st.tuples(st.just("delete_email"), st.fixed_dictionaries({"email_id": _mails})),
    st.tuples(
        st.just("reply_to_email"), st.fixed_dictionaries({"email_id": _mails, "body": _words})
    ),
    st.tuples(
        st.just("send_email"),
        st.fixed_dictionaries(
            {
                "to": st.lists(st.sampled_from(_PEOPLE), min_size=1, unique=True),
                "subject": _words,
                "body": _words,
            }
        ),
    ),
    st.tuples(
        st.just("create_event"),
        st.fixed_dictionaries(
            {
                "title": _words,
                "start": st.sampled_from(["2026-03-10T10:00", "2026-03-11T10:00"]),
                "end": st.sampled_from(["2026-03-12T10:00", "2026-03-13T10:00"]),
            }
        ),
    ),
    st.tuples(
        st.just("update_event"), st.fixed_dictionaries({"event_id": _events, "notes": _words})
    ),
    st.tuples(st.just("cancel_event"), st.fixed_dictionaries({"event_id": _events})),
    st.tuples(st.just("delete_contact"), st.fixed_dictionaries({"contact_id": _contacts})),
    st.tuples(
        st.just("add_contact"),
        st.fixed_dictionaries({"name": _words, "email": st.sampled_from(_PEOPLE)}),
    ),
)
_readings: st.SearchStrategy[Action] = st.one_of(
    st.tuples(st.just("search_emails"), st.fixed_dictionaries({"query": _words})),
    st.tuples(st.just("get_email"), st.fixed_dictionaries({"email_id": _mails})),
    st.tuples(st.just("list_events"), st.just({})),
    st.tuples(st.just("find_contacts"), st.fixed_dictionaries({"query": _words})),
)


def after(*actions: Action) -> Workplace:
    office = OFFICE.copy()
    for name, arguments in actions:
        try:
            call_tool(office, name, json.dumps(arguments).encode())
        except ToolMistake:
            continue
    return office


def differ(expected: Workplace, actual: Workplace) -> bool:
    return bool(differences(OFFICE, expected, actual, _EXACT))


@given(st.lists(_changes, max_size=6))
def test_the_same_actions_leave_no_difference(actions: list[Action]) -> None:
    assert not differ(after(*actions), after(*actions))


@given(st.lists(_changes, max_size=6))
def test_working_on_a_copy_leaves_the_original_alone(actions: list[Action]) -> None:
    before = json.dumps([OFFICE.emails, OFFICE.events, OFFICE.contacts], sort_keys=True)

    after(*actions)

    assert json.dumps([OFFICE.emails, OFFICE.events, OFFICE.contacts], sort_keys=True) == before


@given(st.lists(_changes, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_made_records_does_not_matter(actions: list[Action], chance: Any) -> None:
    making = [action for action in actions if action[0] in {"send_email", "create_event"}]
    shuffled = list(making)
    chance.shuffle(shuffled)

    assert not differ(after(*making), after(*shuffled))


@given(st.lists(_changes, max_size=5), st.lists(_readings, max_size=5))
def test_reading_changes_nothing(changes: list[Action], readings: list[Action]) -> None:
    assert not differ(after(*changes), after(*readings, *changes, *readings))


@given(st.lists(_changes, max_size=4), st.lists(_changes, max_size=4))
def test_a_difference_is_seen_from_both_sides(ours: list[Action], theirs: list[Action]) -> None:
    one, other = after(*ours), after(*theirs)

    assert differ(one, other) == differ(other, one)


@given(st.lists(_changes, max_size=4), _words)
def test_an_email_too_many_is_always_seen(actions: list[Action], word: str) -> None:
    extra = ("send_email", {"to": ["x@y.example"], "subject": word, "body": word})

    assert differ(after(*actions), after(*actions, extra))
    assert differ(after(*actions, extra), after(*actions))


@given(
    st.sampled_from(sorted(TOOLS)), st.binary(max_size=60) | st.text(max_size=60).map(str.encode)
)
def test_any_bytes_as_arguments_are_a_result_or_a_mistake(name: str, body: bytes) -> None:
    office = OFFICE.copy()

    try:
        call_tool(office, name, body)
    except ToolMistake:
        assert office == OFFICE
