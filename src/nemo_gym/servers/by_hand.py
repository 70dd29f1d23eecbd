"""One component served by hand: `python app.py`, in any folder with the run's `env.yaml`.

Comes in: a server class and the command line (`--config FILE`, `--name NAME`, overrides). The
configuration is the component's own plus those files and the working directory's. Other servers
are called where their `host` and `port` say, or where the head server of a live run says.
"""

import argparse
import asyncio
import inspect
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from nemo_gym.config.document import read_document
from nemo_gym.config.load import ConfigRequest, load_run_config
from nemo_gym.config.resolved import RunConfig, ServerInstance
from nemo_gym.config.secrets import RedactingFilter, Redactor
from nemo_gym.config.servers import is_server
from nemo_gym.errors import ConfigMistake, TransportError, UserMistake
from nemo_gym.servers.instance import BaseServer
from nemo_gym.servers.load import build_server_of
from nemo_gym.servers.serve import AppServer, bind_socket
from nemo_gym.transport.directory import Directory
from nemo_gym.transport.server_client import ServerClient, request

__all__ = ["run_by_hand"]

_LOOPBACK = "127.0.0.1"
_HEAD_PORT = 11000
_GRACE_S = 1.0


def run_by_hand(server_class: type[BaseServer], arguments: Sequence[str] | None = None) -> None:
    """Serve `server_class` until SIGINT or SIGTERM; a mistake of the user ends with status 2."""
    try:
        asked = _asked(server_class, arguments)
        config = load_run_config(_request(server_class, asked))
        instance = _instance(server_class, config, asked.name)
        asyncio.run(_serve(server_class, instance, config))
    except UserMistake as mistake:
        print(mistake, file=sys.stderr)  # noqa: T201 - the one message of a command
        raise SystemExit(2) from None


async def _serve(
    server_class: type[BaseServer], instance: ServerInstance, config: RunConfig
) -> None:
    handler = logging.StreamHandler()
    handler.addFilter(RedactingFilter(Redactor(config.secrets)))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    directory = Directory()
    for name, origin in (await _addresses(config)).items():
        directory.set_addresses(name, [origin])
    client = ServerClient(directory, config.tree)
    _, app = build_server_of(server_class, instance, config, client)
    host, port = instance.settings.get("host"), instance.settings.get("port")
    sock = bind_socket(str(host or _LOOPBACK), int(str(port or 0)))
    bound_host, bound_port = sock.getsockname()[:2]
    directory.set_addresses(instance.name, [f"http://{bound_host}:{bound_port}"])
    server = AppServer(app, sock, instance.name)
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await server.start()
    where = f"http://{bound_host}:{bound_port}"
    print(f"{instance.name} ({instance.kind}/{instance.implementation}) at {where}", flush=True)  # noqa: T201 - as said
    await stopping.wait()
    await server.stop(_GRACE_S)
    await client.aclose()


def _asked(server_class: type[BaseServer], arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=f"Serve {server_class.__name__} by hand.",
        epilog="Overrides are those of gym: key=value, +key=value, ++key=value, ~key.",
    )
    parser.add_argument("--config", action="append", default=[], metavar="FILE")
    parser.add_argument("--name", help="instance to serve, where the configuration has several")
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE")
    return parser.parse_args(arguments)


def _request(server_class: type[BaseServer], asked: argparse.Namespace) -> ConfigRequest:
    folder = Path(inspect.getfile(server_class)).resolve().parent
    own = sorted((folder / "configs").glob("*.yaml"))
    named = [path for path in own if path.stem == folder.name]
    files = [*(named or own[:1]), *map(Path, asked.config)]
    # The agents that a configuration binds to an environment are served by other processes.
    others = [f"~{name}" for path in named or own[:1] for name in _others(path, server_class)]
    return ConfigRequest(
        config_files=tuple(map(str, files)),
        overrides=(*others, *asked.overrides),
        search_dirs=(folder.parents[1],) if folder.parent.name == server_class.KIND else (),
    )


def _others(path: Path, server_class: type[BaseServer]) -> list[str]:
    tree = read_document(path, str(path)).tree
    return [
        name
        for name, value in tree.items()
        if is_server(value) and isinstance(value, dict) and server_class.KIND not in value
    ]


def _instance(
    server_class: type[BaseServer], config: RunConfig, name: str | None
) -> ServerInstance:
    folder = Path(inspect.getfile(server_class)).resolve().parent
    found = [s for s in config.servers if s.folder.resolve() == folder]
    chosen = [s for s in found if name in (None, s.name)]
    if chosen:
        return chosen[0]
    known = ", ".join(s.name for s in found) or "none"
    raise ConfigMistake(
        f"no instance of {folder.name} named {name!r} (there are: {known})"
        if name
        else f"the configuration defines no instance of {folder.name}",
        where=str(folder / "configs"),
        mend=f"define one: {folder.name}: {{{server_class.KIND}: {{{folder.name}: "
        "{entrypoint: app.py}}}",
    )


async def _addresses(config: RunConfig) -> dict[str, str]:
    """Return where other servers are: from the head server of a live run, else from settings."""
    found = {
        server.name: f"http://{server.settings.get('host') or _LOOPBACK}:{port}"
        for server in config.servers
        if (port := server.settings.get("port"))
    }
    head = config.tree.get("head_server")
    at = head if isinstance(head, Mapping) else {}
    url = f"http://{at.get('host') or _LOOPBACK}:{at.get('port') or _HEAD_PORT}/servers"
    try:
        book = await (await request("GET", url)).json()
        live = {entry["name"]: entry["addresses"][0] for entry in book["servers"]}
    except (TransportError, ValueError, KeyError, TypeError, IndexError):
        return found
    return {**live, **found}
