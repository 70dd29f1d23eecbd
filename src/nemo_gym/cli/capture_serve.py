"""`gym capture serve`: capture the model calls of any agent, without Gym around it."""

import asyncio
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nemo_gym.cli.interrupts import signals_that_end
from nemo_gym.cli.options import example
from nemo_gym.errors import ConfigMistake, InvalidRolloutId, PortInUse, TransportError
from nemo_gym.ids import RolloutId, parse_rollout_id

if TYPE_CHECKING:
    from nemo_gym.transport.address import Address

__all__ = ["serve"]

_AT_START_S = 3.0
_GRACE_S = 1.0
_LAST_WORDS_S = 5.0
"""For calls that are cut off: a row may wait for the sync before its own, on a slow disk."""


@click.command(
    epilog=example(
        "gym capture serve --upstream https://api.openai.com/v1 --dir results/model-calls"
    )
)
@click.option(
    "--upstream",
    required=True,
    metavar="URL",
    envvar="NEMO_GYM_CAPTURE_UPSTREAM",
    show_envvar=True,
    help="Base URL of the provider. The process list shows it to everyone: a URL with a password "
    "goes into the environment variable, a key into the one that --key-env names.",
)
@click.option(
    "--dir",
    "directory",
    required=True,
    metavar="DIR",
    help="Capture directory; made when it is not there.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=11001, show_default=True, help="0: a free one."
)
@click.option(
    "--key-env",
    metavar="NAME",
    help="Environment variable with the provider's key; without it the client's own is passed on.",
)
@click.option(
    "--max-body-bytes",
    type=click.IntRange(1),
    default=256 << 20,
    show_default=True,
    help="Most bytes kept of one body, after decompression.",
)
@click.option("--rollout-id", metavar="ID", help="Id of calls that name no session of their own.")
def serve(
    upstream: str,
    directory: str,
    *,
    host: str,
    port: int,
    key_env: str | None,
    max_body_bytes: int,
    rollout_id: str | None,
) -> None:
    """Serve a provider's API and capture every model call; point an agent's base URL here.

    Responses, Chat Completions and Messages are forwarded as they come. A call belongs to the
    session that the client names in its headers, else to one id for this process; a path under
    /ng-rollout/ID/ says so itself. Everything else under /v1/ is forwarded and not captured.
    """
    _refuse_empty("--dir", directory, "give a directory; . is the one you are in")
    _refuse_empty("--host", host, "give an address of this machine; 0.0.0.0 is all of them")
    name = _named(rollout_id)
    import uvloop  # only a command that serves pays for it

    capture = _Capture(Path(directory).absolute(), name, max_body_bytes)
    serving = _serve(upstream, _key(key_env), (host, port), capture)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serving)


def _refuse_empty(option: str, given: str, mend: str) -> None:
    """Refuse what a shell makes of a variable that is not set."""
    if not given.strip():
        raise ConfigMistake(f"{option} is empty", where=option, mend=mend)


def _named(rollout_id: str | None) -> RolloutId:
    """Return the id of calls that name no session of their own."""
    if rollout_id is None:
        return parse_rollout_id(f"process-{int(time.time())}-{secrets.token_hex(2)}")
    _refuse_empty(
        "--rollout-id", rollout_id, "give an id, or leave the option out to have one made"
    )
    try:
        return parse_rollout_id(rollout_id)
    except InvalidRolloutId as problem:
        raise ConfigMistake(problem.what, where="--rollout-id", mend=problem.mend) from None


def _key(key_env: str | None) -> str | None:
    if key_env is None:
        return None
    from nemo_gym.servers.provider import key_problem

    key = os.environ.get(key_env, "").strip()
    if not key:
        raise ConfigMistake(
            f"the environment variable {key_env} is not set", where="--key-env", mend="export it"
        )
    problem = key_problem(key)
    if problem is not None:
        raise ConfigMistake(
            f"the key in the environment variable {key_env} {problem}",
            where="--key-env",
            mend="export the key alone, on one line",
        )
    return key


@dataclass(frozen=True, slots=True)
class _Capture:
    directory: Path
    name: RolloutId
    """Of calls that name no session."""
    body_limit: int


async def _serve(
    upstream: str, key: str | None, address: tuple[str, int], capture: _Capture
) -> None:
    # Imported here: the command's help needs no HTTP server.
    from nemo_gym.capture.store import CaptureStore
    from nemo_gym.runtime.capture_server import CaptureServer, provider_at
    from nemo_gym.runtime.layout import origin_of
    from nemo_gym.runtime.memory import settle_memory
    from nemo_gym.servers.forward import Forwarder
    from nemo_gym.servers.serve import AppServer, bind_socket

    store = CaptureStore(capture.directory)
    store.open_for_writing(setting="--dir")
    try:
        sock = bind_socket(*address)
    except PortInUse as problem:
        mend = "stop what holds the port, or give another --port; --port 0 takes a free one"
        raise PortInUse(problem.what, where="--port", mend=mend) from None
    except ConfigMistake as problem:
        mend = "give an address of this machine as --host, and a --port that this user may bind"
        raise ConfigMistake(problem.what, where="--host, --port", mend=mend) from None
    forwarder = Forwarder(provider_at(upstream, key))
    app = CaptureServer(forwarder, store, capture.name, body_limit=capture.body_limit)
    server = AppServer(app, sock, "capture_serve")
    stopping = asyncio.Event()
    for number in signals_that_end():
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await server.start()
    settle_memory()
    origin = origin_of(sock)
    # The URL itself may hold a key.
    shown = forwarder.provider.addresses[0].origin
    click.echo(f"capturing calls to {shown} in {store.directory}")
    click.echo(f"  OPENAI_BASE_URL={origin}/v1   ANTHROPIC_BASE_URL={origin}")
    click.echo(f"  calls without a session of their own: rollout {capture.name}")
    checking = asyncio.create_task(_check(forwarder.provider.addresses))
    await stopping.wait()
    checking.cancel()
    await server.stop(_GRACE_S, _LAST_WORDS_S)
    await asyncio.to_thread(store.close)


async def _check(addresses: "Sequence[Address]") -> None:
    """Warn of a provider that does not answer, which is no reason to refuse: it may come up."""
    from nemo_gym.transport.http import HttpTransport, Limits

    for address in addresses:
        transport = HttpTransport(address, limits=Limits(_AT_START_S, _AT_START_S))
        try:
            await transport.connect()
        except TransportError as problem:
            click.echo(f"warning: the provider does not answer: {problem}", err=True)
        finally:
            await transport.aclose()
