"""A coroutine that reads a reply, stepped by the connection as the pieces come.

A piece of a stream that wakes a task costs a future, a turn of the event loop with a system call of
its own, and the resumption of every coroutine between the task and the one that reads. Here the
connection resumes that one by itself, within the read of the socket, for as long as it waits for
nothing but the next piece; whatever else it waits for, its task waits for
(docs/decisions/035-pieces-step-the-relay.md).
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any

from nemo_gym.transport.base import Reply
from nemo_gym.transport.reply import NEXT_PIECE, HttpReply

__all__ = ["stepped"]

_NOTHING, _EMPTY = object(), Context()


async def stepped(reply: Reply, reading: Coroutine[Any, Any, None]) -> None:
    """Run `reading`, which alone reads `reply`, as `await reading` does.

    To everything that it calls it runs in the task that called this, in one context from beginning
    to end. Context variables that it leaves set are set once this returns.
    """
    if isinstance(reply, HttpReply) and not reply.ended:
        await _Stepped(reply, reading)
    else:
        await reading


class _Stepped(Awaitable[None]):
    """One such coroutine: advanced by its task, and by the reply while the task is parked."""

    __slots__ = (
        "_awaited",
        "_context",
        "_loop",
        "_over",
        "_parked",
        "_problem",
        "_reading",
        "_reply",
        "_task",
    )

    def __init__(self, reply: HttpReply, reading: Coroutine[Any, Any, None]) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a reply is read in a task")
        self._task, self._loop, self._context = task, task.get_loop(), copy_context()
        self._reply, self._reading = reply, reading
        self._awaited: Any = None
        """What the coroutine waits for."""
        self._over = False
        self._problem: BaseException | None = None
        """What it ended with, if that came while it was stepped."""
        self._parked: asyncio.Future[None] | None = None
        """What the task waits for while the reply may step."""

    def __await__(self) -> Generator[Any, Any, None]:
        """Take the coroutine to its end."""
        self._reply.step = self._step
        run, advance = self._context.run, self._advance
        try:
            run(advance)
            while not self._over:
                try:
                    if self._awaited is not NEXT_PIECE:
                        yield self._awaited
                    elif (yield from self._park()):
                        continue
                except GeneratorExit:  # by whoever happens to collect garbage
                    run(self._reading.close)
                    self._context = _EMPTY
                    raise
                except BaseException as thrown:  # it is meant for the coroutine
                    if self._over:  # and came too late
                        raise
                    run(advance, thrown)
                else:
                    run(advance)
            if self._problem is not None:
                raise self._problem
        finally:
            _set_as_in(self._context)
            # A task keeps the error that it was cancelled by, whose traceback holds this frame.
            self._reply.step = self._problem = None
            del self._task

    def _advance(self, thrown: BaseException | None = None) -> None:
        """Let the coroutine run until it waits for something, or is over."""
        try:
            if thrown is None:
                self._awaited = self._reading.send(None)
            else:
                self._awaited = self._reading.throw(thrown)
        except StopIteration:
            self._over = True
        finally:
            del thrown  # its traceback holds this frame

    def _park(self) -> Generator[Any, Any, bool]:
        """Let the reply step; return whether it did, so that the coroutine is elsewhere by now."""
        parked = self._parked = self._reply.waiter = self._loop.create_future()
        try:
            yield from parked
        except asyncio.CancelledError as cancelled:
            # Stepped to something else meanwhile, it would have waited for that, and the task
            # would have cancelled that, giving the same reason.
            if self._over or self._awaited is NEXT_PIECE:
                raise
            if not _cancelled(self._awaited, *cancelled.args):
                raise
        finally:
            self._parked = self._reply.waiter = None
        return self._over or self._awaited is not NEXT_PIECE

    def _step(self) -> None:
        """Let the coroutine run, now that pieces have come. The reply's; never raises."""
        parked = self._parked
        if parked is None or parked.done():
            return  # the task is about to run it
        if asyncio.current_task(self._loop) is None:
            # What is awaited on the way may ask which task it is in.
            asyncio._enter_task(self._loop, self._task)  # noqa: SLF001 - documented
            try:
                self._context.run(self._advance)
            except BaseException as problem:  # noqa: BLE001 - raised in the task
                self._over, self._problem = True, problem
            finally:
                asyncio._leave_task(self._loop, self._task)  # noqa: SLF001 - documented
            if self._awaited is NEXT_PIECE and not self._over:
                return
        if not parked.done():
            parked.set_result(None)


def _set_as_in(context: Context) -> None:
    """Take what was set in another context over into this one."""
    for variable, value in context.items():
        if variable.get(_NOTHING) is not value:
            variable.set(value)


def _cancelled(awaited: Any, *reason: object) -> bool:
    cancel = getattr(awaited, "cancel", None)
    return cancel is not None and bool(cancel(*reason))
