"""Find the servers that `gym env start` runs, through their head server.

A configuration in (for `head_server.host` and `head_server.port`; whatever else it asks for must be
what the servers have), a `RunningServers` out with the configuration of the running servers.
"""

import json
from collections.abc import Mapping
from typing import Any

from nemo_gym.config.resolved import RunConfig
from nemo_gym.errors import ConfigMistake, TransportError, UserMistake
from nemo_gym.runtime.agreement import refuse_differences
from nemo_gym.runtime.head import ServerEntry
from nemo_gym.runtime.layout import DEFAULT_HEAD_PORT, DEFAULT_HOST
from nemo_gym.runtime.memory import settle_memory
from nemo_gym.runtime.registry import live_runs
from nemo_gym.runtime.session import RunningServers
from nemo_gym.transport.base import Call
from nemo_gym.transport.directory import Directory
from nemo_gym.transport.http import HttpTransport
from nemo_gym.transport.server_client import ServerClient

__all__ = ["connect_run", "head_url_of", "read_head"]


async def connect_run(config: RunConfig) -> RunningServers:
    """Return the running servers; raises `UserMistake` when none answer or settings contradict."""
    url = head_url_of(config)
    try:
        book = await read_head(url, "/servers")
        tree = await read_head(url, "/config")
    except TransportError as error:
        why = str(error).removeprefix(f"{url}: ")
        raise UserMistake(
            f"no servers answer at {url}: {why}",
            where="head_server.host, head_server.port",
            mend=_advice(),
        ) from error
    refuse_differences(config, tree, book.get("secret_marks"), url)
    entries = tuple(
        ServerEntry(s["name"], s["kind"], s["implementation"], tuple(s["addresses"]))
        for s in book["servers"]
    )
    directory = Directory()
    for entry in entries:
        directory.set_addresses(entry.name, list(entry.addresses))
    client = ServerClient(directory, tree)
    settle_memory()
    return RunningServers(
        book["run_id"], client, tree, entries, url, log_dir=None, misfits=_misfits(book)
    )


def _misfits(book: Mapping[str, Any]) -> dict[str, UserMistake]:
    told = book.get("misfits") or {}
    return {
        name: ConfigMistake(m["what"], where=m["where"], mend=m["mend"]) for name, m in told.items()
    }


def head_url_of(config: RunConfig) -> str:
    """Return where the head server of a run started apart is expected."""
    head = config.tree.get("head_server")
    settings = head if isinstance(head, Mapping) else {}
    host = settings.get("host") or DEFAULT_HOST
    return f"http://{host}:{settings.get('port') or DEFAULT_HEAD_PORT}"


async def read_head(url: str, route: str) -> dict[str, Any]:
    """Return the JSON object that a head server answers; raises `TransportError`."""
    transport = HttpTransport(url)
    try:
        reply = await transport.send(Call("GET", route, idle_timeout_s=5.0))
        body = await reply.read()
    finally:
        await transport.aclose()
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if reply.status != 200 or not isinstance(value, dict):
        raise TransportError(f"{url}{route} is no head server: it answered {reply.status}")
    return value


def _advice() -> str:
    others = [run for run in live_runs() if run.kind == "env start"]
    if not others:
        return "start them with 'gym env start', or leave '--no-serve' out"
    known = ", ".join(f"{run.head_url} (run {run.run_id})" for run in others)
    return f"these runs are alive: {known}; name one by ++head_server.port=PORT"
