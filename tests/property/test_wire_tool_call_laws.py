"""Tool calls of a Chat stream come back whole, by whatever signs their fragments are told apart."""

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from nemo_gym.wire.dialects import CHAT
from support.reassembly import assemble
from support.responses_made import ARGUMENTS, NAME
from support.sse import DONE, chunk
from support.streamed import cut

_CALLS = st.lists(st.tuples(NAME, ARGUMENTS.map(json.dumps)), min_size=1, max_size=4)


@dataclass(frozen=True)
class Habits:
    """How a server writes the fragments of its calls."""

    ids: str
    """`first`: on the first fragment of a call; `each`; `none`; `empty`: as empty text."""
    indexes: str
    """`each`; `none`; `zero` for every call; `late`: not on the first; `early`: only there."""
    from_index: int
    named_each: bool
    """Whether the name comes with every fragment."""
    opens_empty: bool
    """Whether a call begins with a fragment without arguments."""
    size: int
    """Characters of arguments in a fragment."""


_HABITS = st.builds(
    Habits,
    st.sampled_from(["first", "each", "none", "empty"]),
    st.sampled_from(["each", "none", "zero", "late", "early"]),
    st.sampled_from([0, 1, -1]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 9),
)


def fragments(habits: Habits, place: int, name: str, arguments: str) -> list[dict[str, Any]]:
    """One call as the server with these habits sends it."""
    pieces = ["", *cut(arguments, habits.size)] if habits.opens_empty else [arguments]
    return [_fragment(habits, place, name, piece, nth) for nth, piece in enumerate(pieces)]


def _fragment(habits: Habits, place: int, name: str, piece: str, nth: int) -> dict[str, Any]:
    first = nth == 0
    found: dict[str, Any] = {"type": "function", "function": {"arguments": piece}}
    if first or habits.named_each:
        found["function"]["name"] = name
    if habits.ids == "empty":
        found["id"] = ""
    elif habits.ids == "each" or (habits.ids == "first" and first):
        found["id"] = f"call_{place}"
    if habits.indexes in {"each", "late" if not first else "early"}:
        found["index"] = place + habits.from_index
    elif habits.indexes == "zero":
        found["index"] = 0
    return found


def calls_of(*deltas: list[dict[str, Any]]) -> list[tuple[str, str]]:
    body = b"".join(chunk({"tool_calls": delta}) for delta in deltas)
    response: Any = assemble(CHAT, [body + DONE]).response
    functions = [c["function"] for c in response["choices"][0]["message"]["tool_calls"]]
    return [(f["name"], f["arguments"]) for f in functions]


@example(
    [("f", "{}"), ("g", "{}"), ("f", "{}")],
    Habits("none", "zero", 0, named_each=False, opens_empty=True, size=1),
)
@given(_CALLS, _HABITS)
def test_calls_that_come_one_after_another_are_told_apart(
    calls: list[tuple[str, str]], habits: Habits
) -> None:
    deltas = [[f] for n, call in enumerate(calls) for f in fragments(habits, n, *call)]

    assert calls_of(*deltas) == calls


@given(_CALLS, _HABITS)
def test_calls_that_come_in_one_delta_are_told_apart(
    calls: list[tuple[str, str]], habits: Habits
) -> None:
    together = [f for n, call in enumerate(calls) for f in fragments(habits, n, *call)]

    assert calls_of(together) == calls


@given(_CALLS, st.booleans(), st.integers(1, 9), st.data())
def test_calls_that_grow_in_turns_are_told_apart_by_their_indexes(
    calls: list[tuple[str, str]], named_each: bool, size: int, data: st.DataObject
) -> None:
    habits = Habits("first", "each", 0, named_each, opens_empty=True, size=size)
    queues = [fragments(habits, n, *call) for n, call in enumerate(calls)]
    deltas = [[queue.pop(0)] for queue in queues]
    while any(queues):
        queue = data.draw(st.sampled_from([q for q in queues if q]))
        deltas.append([queue.pop(0)])

    assert calls_of(*deltas) == calls
