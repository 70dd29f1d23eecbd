"""The class that the servers of all kinds derive from: a `BaseServer` that can serve itself."""

from nemo_gym.servers.instance import BaseServer

__all__ = ["SimpleServer"]


class SimpleServer(BaseServer):
    """A server served as a FastAPI app, by a run or by hand."""

    @classmethod
    def run_webserver(cls) -> None:
        """Serve this class by hand: `python app.py` in a folder with the run's configuration."""
        # Only here: importing a component must not load what reads configurations.
        from nemo_gym.servers.by_hand import run_by_hand  # noqa: PLC0415

        run_by_hand(cls)
