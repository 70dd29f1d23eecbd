"""The rollouts under way: one workplace each, from `/seed_session` to `/verify`.

What is never verified is dropped after a while, so that memory follows the number of rollouts at
work, not the number that ever began.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from nemo_gym.resources_servers.workplace_tools.row import Task
from nemo_gym.resources_servers.workplace_tools.workplace import Workplace

__all__ = ["Session", "Sessions"]


@dataclass(slots=True)
class Session:
    """One rollout."""

    task: Task
    office: Workplace
    """As the tools left it."""
    last_used: float = field(default=0.0)
    """By the clock of `Sessions`."""
    tool_calls: int = 0
    tool_errors: int = 0


class Sessions:
    """Sessions by id, the one used longest ago first."""

    def __init__(self, keep_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._keep_s = keep_s
        self._clock = clock
        self._by_id: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(self, session_id: str, task: Task) -> Session:
        """Start a rollout afresh, whatever its session held before."""
        self._drop_old()
        self._by_id.pop(session_id, None)
        session = Session(task, task.before.copy(), self._clock())
        self._by_id[session_id] = session
        return session

    def use(self, session_id: str) -> Session | None:
        """Return a session and keep it for longer; None when there is none."""
        session = self._by_id.pop(session_id, None)
        if session is not None:
            session.last_used = self._clock()
            self._by_id[session_id] = session
        return session

    def end(self, session_id: str) -> Session | None:
        """Return a session for the last time; None when there is none."""
        return self._by_id.pop(session_id, None)

    def _drop_old(self) -> None:
        oldest = self._clock() - self._keep_s
        while self._by_id:
            session_id = next(iter(self._by_id))
            if self._by_id[session_id].last_used > oldest:
                return
            del self._by_id[session_id]
