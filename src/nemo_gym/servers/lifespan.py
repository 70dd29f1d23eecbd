"""The lifespan of an app, run once: started before it is called, stopped when its server stops."""

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message

from nemo_gym.errors import GymError

__all__ = ["AppLifespan", "LifespanFailed"]


class LifespanFailed(RuntimeError):
    """The start or the end of an app's lifespan raised; the cause is that exception where known."""


class AppLifespan:
    """Runs the ASGI lifespan protocol of one app in a task of its own.

    Start-up and shutdown of a lifespan run in the same task, as context managers need it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.state: dict[str, Any] = {}
        """What the app puts here is in the scope of every request, as `scope["state"]`."""
        self._app = app
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return when the app has started; raises `LifespanFailed`."""
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": self.state}
        run = self._app(scope, self._to_app.get, self._from_app.put)
        self._task = asyncio.ensure_future(run)
        await self._step("startup")

    async def stop(self) -> None:
        """Return when the app has shut down; raises `LifespanFailed`. No effect before `start`."""
        if self._task is not None and not self._task.done():
            await self._step("shutdown")
            await asyncio.wait([self._task])

    async def _step(self, step: str) -> None:
        if self._task is None:
            return
        await self._to_app.put({"type": f"lifespan.{step}"})
        answer = asyncio.ensure_future(self._from_app.get())
        await asyncio.wait([answer, self._task], return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            # An app without a lifespan raises or returns at once, which is allowed.
            answer.cancel()
            if step == "shutdown":
                self._raise(step, "")
            else:
                self._forget()
        elif answer.result()["type"] == f"lifespan.{step}.failed":
            await asyncio.wait([self._task])
            self._raise(step, str(answer.result().get("message", "")))

    def _raise(self, step: str, message: str) -> None:
        exc = self._forget()
        if isinstance(exc, GymError):
            # It says by itself what is wrong, and whose mistake it is.
            raise exc
        if exc is not None or message:
            raise LifespanFailed(f"{step} failed: {exc!r}" if exc else message) from exc

    def _forget(self) -> BaseException | None:
        """Return what ended the task, which asyncio would report otherwise."""
        task, self._task = self._task, None
        return None if task is None or task.cancelled() else task.exception()
