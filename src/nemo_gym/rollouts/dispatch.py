"""One attempt at one rollout: the row goes to its agent's `/run`, and how it ended comes back.

Every way a call can fail becomes a `Failure`; only the driver's own cancellation passes through.
"""

from typing import Literal, Protocol

from nemo_gym.errors import (
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    ReplyInvalid,
    TransportError,
)
from nemo_gym.ids import ATTEMPT_INDEX_KEY
from nemo_gym.rollouts.outcome import Failure, Rewarded, judge
from nemo_gym.rollouts.resume import Attempt

__all__ = ["Answer", "RunClient", "run_body", "run_on_agent"]

_CLASS_BY_ERROR: tuple[tuple[type[TransportError], str], ...] = (
    (CallTimeout, "timeout"),
    (ReplyInvalid, "agent_error"),
    (ConnectFailed, "connection"),
    (ConnectionLost, "connection"),
    (TransportError, "connection"),
)


class Answer(Protocol):
    """A whole response of a server of the run."""

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        ...

    async def read(self) -> bytes:
        """Return the body."""
        ...


class RunClient(Protocol):
    """What the driver needs of `transport.server_client.ServerClient`."""

    async def get(self, server_name: str, url_path: str) -> Answer:
        """Return the response of a server of the run."""
        ...

    async def post(
        self,
        server_name: str,
        url_path: str,
        *,
        spread: Literal["rollout", "load"] = "rollout",
        json: bytes,
    ) -> Answer:
        """Return the response of a server of the run; `load` takes the least busy instance."""
        ...


def run_body(attempt: Attempt) -> bytes:
    """Return the body of `/run`: the materialised row, and the attempt from the second on."""
    line = attempt.planned.line
    if attempt.attempt_index < 1:
        return line
    return b'%b,"%b":%d}' % (line[:-1], ATTEMPT_INDEX_KEY.encode(), attempt.attempt_index)


async def run_on_agent(client: RunClient, attempt: Attempt) -> Rewarded | Failure:
    """Return how one attempt ended."""
    try:
        agent, row = attempt.planned.agent, run_body(attempt)
        response = await client.post(agent, "/run", json=row, spread="load")
        body = await response.read()
    except TransportError as error:
        classes = (name for kind, name in _CLASS_BY_ERROR if isinstance(error, kind))
        return Failure(next(classes), str(error))
    return judge(response.status, body)
