"""`gym env status`: the live runs of this user and how their servers are."""

import asyncio
import json
import time
from dataclasses import asdict
from typing import Any

import click

from nemo_gym.cli.output import print_table
from nemo_gym.errors import TransportError
from nemo_gym.runtime.registry import LiveRun, live_runs

__all__ = ["status"]

_EXAMPLE = """\b
Example:
  gym env status --json
"""


@click.command(epilog=_EXAMPLE)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
def status(*, as_json: bool) -> None:
    """List live runs, their servers, addresses and health."""
    runs = live_runs()
    reports = asyncio.run(_reports(runs)) if runs else []
    if as_json:
        click.echo(json.dumps(reports, indent=2))
        return
    if not reports:
        click.echo("no runs are alive; start servers with 'gym env start'")
        return
    now = time.time()
    rows = [
        [
            report["run_id"] if first else "",
            report["kind"] if first else "",
            _age(now - report["started_at"]) if first else "",
            server["name"],
            " ".join(server["addresses"]),
            server["health"],
        ]
        for report in reports
        for first, server in _marked(report["servers"])
    ]
    print_table(["run", "kind", "age", "server", "address", "health"], rows)


async def _reports(runs: list[LiveRun]) -> list[dict[str, Any]]:
    return list(await asyncio.gather(*(_report(run) for run in runs)))


async def _report(run: LiveRun) -> dict[str, Any]:
    from nemo_gym.runtime.connect import read_head  # only when a run is alive

    report = asdict(run)
    head = {"name": "head_server", "kind": "head_server", "addresses": [run.head_url]}
    try:
        servers = (await read_head(run.head_url, "/servers"))["servers"]
        head["health"] = "ok"
    except TransportError as error:
        servers = []
        head["health"] = f"no answer: {error}"
    report["servers"] = [head, *await asyncio.gather(*(_health(s) for s in servers))]
    return report


async def _health(server: dict[str, Any]) -> dict[str, Any]:
    from nemo_gym.runtime.connect import read_head

    try:
        for address in server["addresses"]:
            await read_head(address, "/health")
    except TransportError as error:
        return {**server, "health": f"no answer: {error}"}
    return {**server, "health": "ok"}


def _marked(servers: list[dict[str, Any]]) -> list[tuple[bool, dict[str, Any]]]:
    return [(number == 0, server) for number, server in enumerate(servers)]


def _age(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
