"""What a connection steps does and sees what it would if its task were woken for each piece."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym.errors import ConnectionLost
from nemo_gym.transport.fake import FakeReply
from nemo_gym.transport.reply import HttpReply
from nemo_gym.transport.stepping import stepped

ROLLOUT: ContextVar[str] = ContextVar("ROLLOUT")
PASSED: ContextVar[int] = ContextVar("PASSED")
HANDING_ON: ContextVar[str | None] = ContextVar("HANDING_ON", default=None)
WAYS = ("at once", "when opened", "next turn", "in a task", "swallows", "raises")
"""What handing a piece on may take."""


class Source:
    """The connection, as far as a reply needs one."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.reply = HttpReply(self, 200, [])
        self.given_up = False

    def resume(self, reply: HttpReply) -> None:
        """Have nothing to resume."""

    def abandon(self, owner: HttpReply) -> None:
        self.given_up = True
        owner.end(ConnectionLost("given up", response_started=True))

    def pieces_come(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self.reply.add(piece)
        if self.reply.step is not None:
            self.reply.step()


@dataclass
class Relay:
    """What reads the reply, and what it saw."""

    ways: list[str]
    passed: list[bytes] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, reply: HttpReply) -> None:
        me = asyncio.current_task()
        PASSED.set(0)
        try:
            while piece := await reply.chunk():
                assert asyncio.current_task() is me
                assert ROLLOUT.get() == "mine"
                assert PASSED.get() == len(self.passed)
                token = HANDING_ON.set("piece")
                try:
                    await self._hand_on(piece)
                finally:
                    assert HANDING_ON.get() == "piece"
                    HANDING_ON.reset(token)
                    PASSED.set(len(self.passed))
                assert asyncio.current_task() is me
        except BaseException as problem:
            self.seen.append(type(problem).__name__)
            raise
        finally:
            await reply.aclose()
            self.seen.append("closed")

    async def _hand_on(self, piece: bytes) -> None:
        self.passed.append(piece)
        # By what was passed and not by how often, since pieces may meet in a chunk.
        way = self.ways[len(b"".join(self.passed)) % len(self.ways)]
        if way == "when opened":
            self.gate.clear()
            await self.gate.wait()
        elif way == "next turn":
            await asyncio.sleep(0)
        elif way == "in a task":
            await asyncio.create_task(self.gate.wait())
        elif way == "swallows":
            try:
                await asyncio.create_task(self.gate.wait())
            except asyncio.CancelledError:
                self.seen.append("swallowed")
        elif way == "raises":
            raise LookupError


Run = Callable[[HttpReply, Relay], Awaitable[None]]


async def by_steps(reply: HttpReply, relay: Relay) -> None:
    await stepped(reply, relay.run(reply))


async def by_waking(reply: HttpReply, relay: Relay) -> None:
    await relay.run(reply)


@dataclass
class Outcome:
    how: str
    passed: bytes
    seen: list[str]
    given_up: bool


PIECES = st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=3)
Event = tuple[str, list[bytes]]
EVENTS = st.lists(
    st.one_of(
        PIECES.map(lambda pieces: ("pieces", pieces)),
        PIECES.map(lambda pieces: ("pieces in a task", pieces)),
        st.sampled_from([("open", []), ("open", []), ("end", []), ("break", []), ("cancel", [])]),
    ),
    max_size=8,
)
LAST: list[Event] = [("end", []), ("open", []), ("open", []), ("open", [])]


async def outcome(run: Run, events: list[Event], ways: list[str], turns: list[int]) -> Outcome:
    """Let `events` happen, with so many turns of the loop after each, and say how it went."""
    source, relay = Source(), Relay(ways)
    loop = asyncio.get_running_loop()

    async def call() -> None:
        ROLLOUT.set("mine")
        try:
            await run(source.reply, relay)
        finally:
            relay.seen.append(f"{PASSED.get()} {HANDING_ON.get()}")

    task = asyncio.create_task(call())
    await asyncio.sleep(0)
    for at, (kind, pieces) in enumerate([*events, *LAST]):
        if kind == "pieces":
            loop.call_soon(source.pieces_come, pieces)
            await asyncio.sleep(0)
        elif kind == "pieces in a task":
            source.pieces_come(pieces)
        elif kind == "open":
            relay.gate.set()
        elif kind == "cancel":
            task.cancel()
        elif kind == "end":
            source.reply.end()
        else:
            source.reply.end(ConnectionLost("lost", response_started=True))
        for _ in range(turns[at % len(turns)]):
            await asyncio.sleep(0)
    while not task.done():
        relay.gate.set()
        await asyncio.sleep(0)
    assert source.reply.step is None
    return Outcome(ending(task), b"".join(relay.passed), relay.seen, source.given_up)


def ending(task: "asyncio.Task[None]") -> str:
    if task.cancelled():
        return "cancelled"
    problem = task.exception()
    return "ended" if problem is None else type(problem).__name__


@settings(max_examples=400)
@given(EVENTS, st.lists(st.sampled_from(WAYS), min_size=1, max_size=5))
async def test_it_ends_as_if_its_task_were_woken(events: list[Event], ways: list[str]) -> None:
    """With the time between two events that a task takes to be woken."""
    stepping = await outcome(by_steps, events, ways, [8])
    assert stepping == await outcome(by_waking, events, ways, [8])


@settings(max_examples=400)
@given(
    EVENTS,
    st.lists(st.sampled_from(WAYS), min_size=1, max_size=5),
    st.lists(st.integers(0, 3), min_size=1, max_size=5),
)
async def test_it_ends_once_whatever_comes_at_the_same_time(
    events: list[Event], ways: list[str], turns: list[int]
) -> None:
    found = await outcome(by_steps, events, ways, turns)

    sent = b"".join(piece for kind, pieces in events if "pieces" in kind for piece in pieces)
    assert found.how in {"ended", "cancelled", "LookupError", "ConnectionLost"}
    assert sent.startswith(found.passed)
    assert found.passed == sent or found.how != "ended" or ("end", []) in events
    assert found.seen.count("closed") == 1


async def test_a_cancellation_reaches_what_it_was_stepped_to() -> None:
    """Its task has not yet begun to wait for that."""
    source = Source()
    awaited = asyncio.get_running_loop().create_future()

    reasons = []

    async def read() -> None:
        await source.reply.chunk()
        try:
            await awaited
        except asyncio.CancelledError as cancelled:
            reasons.append(cancelled.args)
            raise

    task = asyncio.create_task(stepped(source.reply, read()))
    await asyncio.sleep(0)

    def piece_comes_and_client_goes() -> None:
        source.pieces_come([b"piece"])
        task.cancel("gone")

    asyncio.get_running_loop().call_soon(piece_comes_and_client_goes)
    await asyncio.wait([task])
    assert task.cancelled()
    assert awaited.cancelled()
    assert reasons == [("gone",)]


async def test_a_cancelled_task_takes_no_further_piece() -> None:
    source, passed = Source(), []

    async def read() -> None:
        while piece := await source.reply.chunk():
            passed.append(piece)

    task = asyncio.create_task(stepped(source.reply, read()))
    await asyncio.sleep(0)

    def client_goes_and_piece_comes() -> None:
        task.cancel()
        source.pieces_come([b"piece"])

    asyncio.get_running_loop().call_soon(client_goes_and_piece_comes)
    await asyncio.wait([task])
    assert task.cancelled()
    assert passed == []


async def test_what_is_not_read_over_a_connection_is_awaited() -> None:
    reply, passed = FakeReply(200, [], [b"one", b"two"]), []

    async def read() -> None:
        while piece := await reply.chunk():
            passed.append(piece)

    await stepped(reply, read())
    assert passed == [b"one", b"two"]


async def test_whoever_collects_one_that_nobody_awaits_keeps_its_own_context() -> None:
    source, ended = Source(), []

    async def read() -> None:
        ROLLOUT.set("somebody else's")
        try:
            await source.reply.chunk()
        finally:
            ended.append(ROLLOUT.get())

    ROLLOUT.set("mine")
    reading = stepped(source.reply, read())
    reading.send(None)
    reading.close()

    assert (ROLLOUT.get(), ended) == ("mine", ["somebody else's"])
