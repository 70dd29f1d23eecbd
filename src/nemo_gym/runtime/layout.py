"""Where every server of a run listens: sockets bound before anything starts.

A configuration and the planned processes in, bound sockets and the address book out.
"""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nemo_gym.config.resolved import RunConfig, ServerInstance
from nemo_gym.errors import PortInUse, UserMistake
from nemo_gym.runtime.head import ServerEntry
from nemo_gym.runtime.placement import ProcessPlan
from nemo_gym.servers.serve import bind_socket

__all__ = ["DEFAULT_HEAD_PORT", "DEFAULT_HOST", "Layout", "bind_head", "bind_layout", "origin_of"]

DEFAULT_HOST = "127.0.0.1"
DEFAULT_HEAD_PORT = 11000
_BACKLOG = 4096
_TAKE_ANOTHER = "set another `port`, or leave it out to take a free one"
_HEAD_ELSEWHERE = (
    "'gym env status' lists live runs and 'gym env stop' ends one; to run beside them, take "
    "another port with ++head_server.port=…, here and with --no-serve"
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The processes of a run and the socket of every server in them."""

    plans: tuple[ProcessPlan, ...]
    sockets: Mapping[str, dict[str, socket.socket]] = field(default_factory=dict)
    """Process name to server name to bound socket."""

    def addresses(self) -> dict[str, list[str]]:
        """Return every server's origins, the one with the documented port first."""
        found: dict[str, list[str]] = {}
        for plan in self.plans:
            for name, sock in self.sockets[plan.name].items():
                found.setdefault(name, []).append(origin_of(sock))
        return found

    def entries(self, servers: Sequence[ServerInstance]) -> tuple[ServerEntry, ...]:
        """Return the address book that the head server shows."""
        addresses = self.addresses()
        return tuple(
            ServerEntry(s.name, s.kind, s.implementation, tuple(addresses[s.name])) for s in servers
        )

    def close(self) -> None:
        """Close every socket; an app that took one over has closed it already."""
        for by_server in self.sockets.values():
            for sock in by_server.values():
                sock.close()


def bind_layout(plans: tuple[ProcessPlan, ...]) -> Layout:
    """Bind a socket for each server of each process; raises `PortInUse`, leaving none bound."""
    layout = Layout(plans, {plan.name: {} for plan in plans})
    try:
        for plan in plans:
            for server in plan.servers:
                host, port = _address(server, fixed=plan.fixed_ports)
                where = f"{server.name}.{server.kind}.{server.implementation}"
                layout.sockets[plan.name][server.name] = _listening(host, port, where)
    except BaseException:
        layout.close()
        raise
    return layout


def _listening(host: str, port: int, section: str) -> socket.socket:
    """Bind and listen at once: two runs that want one port cannot both get past this line.

    `section` holds `host` and `port` in the configuration; a mistake says so.
    """
    try:
        sock = bind_socket(host, port)
        try:
            sock.listen(_BACKLOG)
        except OSError as error:
            sock.close()
            raise PortInUse(f"{host}:{port} is in use", mend=_TAKE_ANOTHER) from error
    except UserMistake as mistake:
        mistake.where = f"{section}.host, {section}.port"
        raise
    return sock


def bind_head(config: RunConfig, *, free_port: bool) -> socket.socket:
    """Bind the head server: `head_server.host` and `.port`, by default `127.0.0.1:11000`.

    `free_port` leaves the port of the configuration to the run that it is shared with; one that an
    override gives is for this run and is taken.
    """
    head = config.tree.get("head_server")
    settings = head if isinstance(head, Mapping) else {}
    host, port = settings.get("host"), settings.get("port")
    documented = port if isinstance(port, int) else DEFAULT_HEAD_PORT
    host = host if isinstance(host, str) else DEFAULT_HOST
    try:
        free = free_port and not _is_overridden(config, "head_server.port")
        return _listening(host, 0 if free else documented, "head_server")
    except PortInUse as mistake:
        mistake.mend = _HEAD_ELSEWHERE
        raise


def _is_overridden(config: RunConfig, key: str) -> bool:
    section = key.partition(".")[0]
    origin = config.origins.get(key) or config.origins.get(section, "")
    return origin.startswith("override ")


def origin_of(sock: socket.socket) -> str:
    """Return the origin at which a bound socket can be called from this machine."""
    host, port = sock.getsockname()[:2]
    reachable = {"0.0.0.0": DEFAULT_HOST, "::": "::1"}.get(host, host)  # noqa: S104 - read, not bound
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def _address(server: ServerInstance, *, fixed: bool) -> tuple[str, int]:
    host, port = server.settings.get("host"), server.settings.get("port")
    return (
        host if isinstance(host, str) else DEFAULT_HOST,
        port if fixed and isinstance(port, int) else 0,
    )
