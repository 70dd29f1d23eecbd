"""A run's servers in, the processes that host them out. Pure: no sockets, no processes.

A cell hosts one instance of every server. A server whose settings say `own_process: true`, or all
of them with `one_process_each`, gets a process of its own, shared by the cells.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nemo_gym.config.resolved import ServerInstance

__all__ = ["OWN_PROCESS_KEY", "PYTHON_KEY", "ProcessPlan", "plan_processes"]

OWN_PROCESS_KEY = "own_process"
PYTHON_KEY = "python"


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """One process of the run."""

    name: str
    """`cell-0`, `cell-1`, … or the name of the one server it hosts."""
    servers: tuple[ServerInstance, ...]
    is_cell: bool
    fixed_ports: bool
    """Whether ports named in the settings are taken here; a further cell takes free ones."""
    python: str | None = None
    """Interpreter for a server with a virtual environment of its own; None: this one."""


def plan_processes(
    servers: Sequence[ServerInstance], workers: int, *, one_process_each: bool = False
) -> tuple[ProcessPlan, ...]:
    """Return the processes of a run: `workers` cells (0 or more servers each), then the lone ones.

    `workers` is at least 1. The first cell takes the documented ports.
    """
    alone = [s for s in servers if one_process_each or _wants_own_process(s)]
    shared = tuple(s for s in servers if s not in alone)
    cells = tuple(
        ProcessPlan(f"cell-{n}", shared, is_cell=True, fixed_ports=n == 0)
        for n in range(workers if shared else 0)
    )
    lone = tuple(
        ProcessPlan(s.name, (s,), is_cell=False, fixed_ports=True, python=_python(s)) for s in alone
    )
    return cells + lone


def _wants_own_process(server: ServerInstance) -> bool:
    return server.settings.get(OWN_PROCESS_KEY) is True or _python(server) is not None


def _python(server: ServerInstance) -> str | None:
    value = server.settings.get(PYTHON_KEY)
    return value if isinstance(value, str) else None
