"""The one tree of errors: whose fault it is, what happened, where, and how to mend it.

::

    GymError
    ├── UserMistake             exit 2; one message, no traceback
    │   ├── ConfigMistake       a key, a value or a file of the configuration
    │   ├── UnknownComponent    no such resources server, agent or model type
    │   ├── InvalidRow          a row of an input file, by file and line
    │   ├── InvalidRolloutId    outside the grammar of `ids`
    │   ├── OutputExists        an output that would be overwritten
    │   ├── OutputUnusable      an output that cannot be created or written
    │   ├── ResumeRefused       inputs or configuration changed since the run began
    │   ├── RunConflict         another live run holds what this one needs
    │   └── PortInUse           a port that a server was told to take
    ├── ServerDied              a server ended by itself; carries the end of its log
    ├── CaptureDamaged          a capture file holds lines that cannot be read
    └── TransportError          a call that did not end in a whole response
        ├── ConnectFailed       nothing was sent: the other side was never reached
        ├── ConnectionLost      the connection broke; `response_started` says how far it was
        ├── ReplyInvalid        what came back is not HTTP
        └── CallTimeout         nothing came for longer than the idle timeout
"""

__all__ = [
    "CallTimeout",
    "CaptureDamaged",
    "ConfigMistake",
    "ConnectFailed",
    "ConnectionLost",
    "GymError",
    "InvalidRolloutId",
    "InvalidRow",
    "OutputExists",
    "OutputUnusable",
    "PortInUse",
    "ReplyInvalid",
    "ResumeRefused",
    "RunConflict",
    "ServerDied",
    "TransportError",
    "UnknownComponent",
    "UserMistake",
]


class GymError(Exception):
    """Everything this package raises on purpose."""


class UserMistake(GymError):
    """Something the user can mend: what is wrong, where (file and key), and how to mend it."""

    def __init__(self, what: str, *, where: str | None = None, mend: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.mend = mend

    def __str__(self) -> str:
        place = f"\n  where: {self.where}" if self.where else ""
        advice = f"\n  mend:  {self.mend}" if self.mend else ""
        return f"{self.what}{place}{advice}"


class ConfigMistake(UserMistake):
    """A key, a value or a file of the configuration is wrong."""


class UnknownComponent(UserMistake):
    """No component of that kind has that name under any component root."""


class Doubt(UserMistake):
    """What may be a mistake and may be none: told as a warning, and no reason to refuse."""


class InvalidRow(UserMistake):
    """A row of an input file cannot be used; `where` is `file:line`."""


class InvalidRolloutId(UserMistake, ValueError):
    """A rollout id outside the grammar of `nemo_gym.ids`."""


class OutputExists(UserMistake):
    """The output is there already and neither `--resume` nor `--overwrite` was given."""


class OutputUnusable(UserMistake):
    """The output, or a file beside it, cannot be created or written."""


class ResumeRefused(UserMistake):
    """The inputs or the configuration changed, so the run cannot go on where it stopped."""


class RunConflict(UserMistake):
    """Another live run holds something that only one may hold; the message names that run."""


class PortInUse(UserMistake):
    """A server was told to take a port that something else holds."""


class ServerDied(GymError):
    """A server ended by itself, or never became healthy."""

    def __init__(self, name: str, reason: str, log_tail: str = "") -> None:
        super().__init__(f"{name}: {reason}" + (f"\n{log_tail}" if log_tail else ""))
        self.name = name
        self.reason = reason
        self.log_tail = log_tail


class CaptureDamaged(GymError):
    """A capture file holds lines that cannot be read; the message has the count and the file."""


class TransportError(GymError):
    """A call that did not end in a whole response.

    `lasting`: it will end so each time, until somebody mends something.
    """

    def __init__(self, message: str = "", *, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting


class ConnectFailed(TransportError):
    """The other side was never reached: nothing was sent, so a retry cannot repeat anything."""


class ConnectionLost(TransportError):
    """The connection broke after the request went out."""

    def __init__(self, message: str, *, response_started: bool) -> None:
        super().__init__(message)
        self.response_started = response_started


class ReplyInvalid(TransportError):
    """What came back is not HTTP."""


class CallTimeout(TransportError):
    """Nothing came for longer than the idle timeout."""
