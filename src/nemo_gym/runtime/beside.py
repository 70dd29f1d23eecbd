"""Metrics of drivers that use the servers of a run from processes of their own (`--no-serve`).

The list of live runs says where each answers, so a run stays one target to be scraped. A driver of
another user or machine is in another list: it is not found.
"""

import asyncio

from nemo_gym.errors import GymError
from nemo_gym.runtime.registry import LiveRun, live_runs
from nemo_gym.telemetry.exposition import Exposition
from nemo_gym.transport.base import Call
from nemo_gym.transport.http import HttpTransport

__all__ = ["SERVERS_OF", "expositions_beside"]

SERVERS_OF = "servers_of"
"""Key in a driver's entry of live runs: the id of the run whose servers it uses."""
_PATIENCE_S = 2.0


async def expositions_beside(run_id: str) -> list[Exposition]:
    """Return the metrics of drivers that use the servers of `run_id`; one that is slow has none.

    Two of them may drive at once: the label `run` tells them apart.
    """
    try:
        alive = await asyncio.to_thread(live_runs)
    except GymError:
        return []
    drivers = [run for run in alive if run.extra.get(SERVERS_OF) == run_id]
    texts = await asyncio.gather(*map(_text, drivers))
    return [
        Exposition(text, {"process": "driver", "run": run.run_id})
        for run, text in zip(drivers, texts, strict=True)
        if text
    ]


async def _text(driver: LiveRun) -> str:
    """Return what the driver exposes; empty where it exposes nothing or does not answer."""
    transport = HttpTransport(str(driver.extra.get("figures_url")))
    try:
        async with asyncio.timeout(_PATIENCE_S):
            reply = await transport.send(Call("GET", "/metrics", idle_timeout_s=_PATIENCE_S))
            body = await reply.read()
    except (GymError, TimeoutError, ValueError):
        return ""
    finally:
        await transport.aclose()
    return body.decode("utf-8", "replace") if reply.status == 200 else ""
