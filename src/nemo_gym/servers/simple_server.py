"""The class that the servers of all kinds derive from: a `BaseServer` that can serve itself."""

from typing import ClassVar

from nemo_gym.servers.instance import BaseServer
from nemo_gym.wire.dialects import DialectName

__all__ = ["SimpleServer"]


class SimpleServer(BaseServer):
    """A server served as a FastAPI app, by a run or by hand."""

    CALLED_DIALECTS: ClassVar[tuple[DialectName, ...] | None] = None
    """What this server asks of every model server in its settings: `responses`, `chat`, `messages`.

    Written out in the class of the entrypoint, since it is read from the source: a run in which a
    model server cannot answer is refused before it starts. None: not said, and never refused.
    """

    @classmethod
    def run_webserver(cls) -> None:
        """Serve this class by hand: `python app.py` in a folder with the run's configuration."""
        # Only here: importing a component must not load what reads configurations.
        from nemo_gym.servers.by_hand import run_by_hand  # noqa: PLC0415

        run_by_hand(cls)
