"""`gym env start`: start the servers of a configuration and keep them until told to stop."""

import asyncio
import contextlib
import sys
import time

import click

from nemo_gym.cli.interrupts import signals_that_end
from nemo_gym.cli.options import config_options, example, placement_options
from nemo_gym.config.load import ConfigRequest, load_run_config, require_servers
from nemo_gym.config.resolved import RunConfig
from nemo_gym.runtime.console import follow_consoles
from nemo_gym.runtime.session import RunningServers, RunOptions, open_run
from nemo_gym.runtime.supervise import first_death

__all__ = ["start"]


@click.command(epilog=example("gym env start --resources-server mcqa --model-type local_model"))
@config_options
@placement_options
def start(request: ConfigRequest, workers: int, *, one_process_each: bool) -> None:
    """Start the servers of an environment; keep them until Ctrl-C or 'gym env stop'."""
    began = time.monotonic()
    config = load_run_config(request)
    require_servers(config)
    for number, server in enumerate(config.servers, 1):
        click.echo(f"[{number}] {server.name} ({server.kind}/{server.implementation})")
    for misfit in dict.fromkeys(config.misfits.values()):
        click.secho(f"warning: {misfit}", fg="yellow", err=True)
    options = RunOptions(
        kind="env start",
        workers=workers,
        one_process_each=one_process_each,
        in_process=False,
        free_head_port=False,
    )
    import uvloop  # only a command that serves pays for it

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_told(config, options, began))
    sys.exit(0)


async def _until_told(config: RunConfig, options: RunOptions, began: float) -> None:
    """Serve until a signal says to end; a server that dies is raised."""
    stopping = asyncio.Event()
    for number in signals_that_end():
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    serving = asyncio.ensure_future(_serve(config, options, began))
    stopped = asyncio.ensure_future(stopping.wait())
    await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if serving.done():
        return await serving
    click.echo("stopping", err=True)
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    return None


async def _serve(config: RunConfig, options: RunOptions, began: float) -> None:
    async with open_run(config, options, _tell) as running:
        _announce(running, time.monotonic() - began)
        consoles = [child.console_path for child in running.children]
        following = asyncio.ensure_future(follow_consoles(consoles, _tell))
        try:
            raise await first_death(running.children)
        finally:
            following.cancel()


def _announce(running: RunningServers, took_s: float) -> None:
    for problem in running.problems:
        click.secho(f"warning: {problem}", fg="yellow", err=True)
    click.echo(
        f"all {len(running.servers)} servers healthy in {took_s:.1f} s; "
        f"head server {running.head_url}; logs {running.log_dir}"
    )
    click.echo("Ctrl-C or 'gym env stop' ends them")


def _tell(line: str) -> None:
    click.echo(line, err=True)
