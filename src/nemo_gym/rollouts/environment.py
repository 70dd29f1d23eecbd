"""The environment's own metrics: rows of the output go to the agent's `/aggregate_metrics`.

Evidence attachments are never sent. Rows are read from the output when the run is over, so that
nothing of them is kept meanwhile; what is sent at once is bounded, and what does not fit is said.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym.errors import TransportError
from nemo_gym.rollouts.dispatch import RunClient
from nemo_gym.rollouts.leftovers import agent_of, read_members
from nemo_gym.rollouts.lines import Members, join_members
from nemo_gym.rollouts.plan import PARAMS_KEY
from nemo_gym.rollouts.resume import pair_of
from nemo_gym.wire.json import JsonError, loads_strictly

__all__ = ["EnvironmentMetrics", "ask_environment", "rows_for_environment"]

_PATH = "/aggregate_metrics"
_TIMEOUT_S = 600.0
_LEVELS: tuple[tuple[tuple[str, ...], int], ...] = (
    ((), 32 << 20),
    ((PARAMS_KEY,), 32 << 20),
    ((PARAMS_KEY, "response"), 64 << 20),
)
"""What is left out of rows, and how many bytes of them may be sent then."""


@dataclass(frozen=True, slots=True)
class EnvironmentMetrics:
    """What an environment makes of an agent's rollouts; empty where it was not asked."""

    agent_metrics: Mapping[str, object] = field(default_factory=dict)
    key_metrics: Mapping[str, object] = field(default_factory=dict)
    group_level_metrics: list[object] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    """What a reader must know: rows that were shortened, or why there is nothing."""


async def ask_environment(client: RunClient, agent: str, output: Path) -> EnvironmentMetrics:
    """Return the metrics that an agent's environment computes from the rows of an output."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            if not await _has_own_metrics(client, agent):
                return EnvironmentMetrics()
            body, notes = await asyncio.to_thread(rows_for_environment, output, agent)
            if body is None:
                return EnvironmentMetrics(notes=notes)
            response = await client.post(agent, _PATH, json=body)
            return _read(response.status, await response.read(), notes)
    except TransportError as error:
        return _missing(str(error))
    except TimeoutError:
        return _missing(f"no answer within {_TIMEOUT_S:g} s")


async def _has_own_metrics(client: RunClient, agent: str) -> bool:
    """Say whether an environment computes metrics of its own; one that does not say may.

    `GET /aggregate_metrics` answers `{"custom": false}` where the defaults are all there is: the
    driver has computed those already, and no row needs to travel.
    """
    response = await client.get(agent, _PATH)
    if response.status != 200:
        return True
    answer = _object(await response.read())
    return answer.get("custom") is not False


def _read(status: int, body: bytes, notes: tuple[str, ...]) -> EnvironmentMetrics:
    answer = _object(body)
    if status != 200 or not answer:
        said = body[:500].decode(errors="replace")
        return _missing(f"{_PATH} answered {status}: {said}")
    agent_metrics, key_metrics = answer.get("agent_metrics"), answer.get("key_metrics")
    groups = answer.get("group_level_metrics")
    return EnvironmentMetrics(
        agent_metrics if isinstance(agent_metrics, dict) else {},
        key_metrics if isinstance(key_metrics, dict) else {},
        groups if isinstance(groups, list) else [],
        notes,
    )


def _missing(reason: str) -> EnvironmentMetrics:
    return EnvironmentMetrics(notes=(f"the environment's own metrics are missing: {reason}",))


def _object(body: bytes) -> dict[str, object]:
    try:
        value = loads_strictly(body)
    except JsonError:
        return {}
    return value if isinstance(value, dict) else {}


def rows_for_environment(
    output: Path, agent: str, *, levels: Sequence[tuple[tuple[str, ...], int]] = _LEVELS
) -> tuple[bytes | None, tuple[str, ...]]:
    """Return the body of `/aggregate_metrics`, by task and repeat, and what a reader must know.

    Attachments are left out always. Of `levels` the first is taken with which the rows are not more
    than its bytes: each says what else is left out. None when they are too many even for the last.
    """
    for left_out, most in levels:
        body = _rows(output, agent, ("ng_", *left_out), most)
        if body is not None and left_out:
            note = f"{' and '.join(left_out)} were not sent, because the rows are too large"
            return body, (f"the environment's own metrics: {note}",)
        if body is not None:
            return body, ()
    return None, _missing(f"the rows are more than {levels[-1][1] >> 20} MiB").notes


def _rows(output: Path, agent: str, left_out: tuple[str, ...], most: int) -> bytes | None:
    rows: list[tuple[tuple[int, int], bytes]] = []
    size = 0
    for members in read_members(output):
        if agent_of(members) != agent:
            continue
        line = join_members(_without(members, left_out))
        size += len(line)
        if size > most:
            return None
        rows.append((pair_of(members) or (0, 0), line))
    rows.sort()
    return b'{"verify_responses":[%b]}' % b",".join(line for _, line in rows)


def _without(members: Members, left_out: tuple[str, ...]) -> Members:
    return {key: raw for key, raw in members.items() if not key.startswith(left_out)}
