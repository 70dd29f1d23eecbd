"""Where the servers of this process listen, for clients that need a URL rather than a transport."""

__all__ = ["forget_origin", "note_origin", "origin_here"]

_ORIGINS: dict[str, str] = {}


def note_origin(server_name: str, host: str, port: int) -> None:
    """Note that a server of this process listens at `host` and `port`."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared only
    shown = f"[{reachable}]" if ":" in reachable else reachable
    _ORIGINS[server_name] = f"http://{shown}:{port}"


def forget_origin(server_name: str) -> None:
    """Note that a server of this process has stopped."""
    _ORIGINS.pop(server_name, None)


def origin_here(server_name: str) -> str | None:
    """Return `http://host:port` of a server of this process; None when it does not listen here."""
    return _ORIGINS.get(server_name)
