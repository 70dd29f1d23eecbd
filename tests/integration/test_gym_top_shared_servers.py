"""`gym top` where two evaluations use the same servers: each is shown with its own rollouts."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nemo_gym.cli.top import Look, _header, _look
from nemo_gym.cli.top_frame import frame
from nemo_gym.runtime.head import HeadApp
from nemo_gym.runtime.registry import LiveRun, RunEntry, process_start
from nemo_gym.telemetry.figures import FigureSnapshot, RolloutFigures, snapshot, to_json
from nemo_gym.telemetry.run_view import view_run
from support.serving import serving


def told(name: str, pid: int, finished: int | None) -> FigureSnapshot:
    """Return the figures of a process that drives a hundred rollouts, or none."""
    counts = (100, 100, 4, 4, finished or 0, 0, 0.0, 0.0, 0.0)
    rollouts = None if finished is None else RolloutFigures(*counts, ran_s=10.0)
    return replace(snapshot(name), pid=pid, rollouts=rollouts)


@asynccontextmanager
async def two_drivers(
    state: Path, monkeypatch: pytest.MonkeyPatch, *, of_an_evaluation: bool = False
) -> AsyncIterator[dict[str, LiveRun]]:
    """Serve figures of servers and of two drivers that use them, all listed as live."""
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    pid, now, runs = os.getpid(), time.time(), dict[str, LiveRun]()
    finished = {"servers": 90 if of_an_evaluation else None, "first": 11, "second": 22}
    async with AsyncExitStack() as stack:
        for number, (name, ended) in enumerate(finished.items()):
            body = to_json([told(name, number, ended)])

            async def figures(body: bytes = body) -> tuple[str, bytes]:
                return "application/json", body

            head = HeadApp(name, {}, (), figures=figures)
            url = await stack.enter_async_context(serving(head))
            extra = {"figures_url": url, "servers_of": "servers"} if number else {}
            kind = "eval run" if number or of_an_evaluation else "env start"
            head_url = url if not number else runs["servers"].head_url
            runs[name] = LiveRun(
                *(name, kind, pid, process_start(pid) or 0.0, now - 60 + number, head_url),
                *("/somewhere", str(state), (), None, dict[str, object](extra)),
            )
            stack.enter_context(RunEntry(runs[name]))
        yield runs


def finished_in(look: Look | None) -> list[int]:
    assert look is not None
    return [one.rollouts.finished for one in look.figures if one.rollouts is not None]


def lines_of(run: LiveRun, look: Look | None) -> str:
    assert look is not None
    view = view_run(look.figures, others=look.others)
    return "\n".join(line.text for line in frame(view, _header(run, look)))


@pytest.mark.parametrize(
    ("name", "other", "finished"), [("first", "second", 11), ("second", "first", 22)]
)
async def test_the_run_that_was_asked_for_is_shown_and_the_other_one_named(
    name: str, other: str, finished: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_drivers(tmp_path, monkeypatch) as runs:
        look = await _look(runs[name])

    assert finished_in(look) == [finished]
    shown = lines_of(runs[name], look)
    assert f"{finished}/100" in shown
    assert f"the same servers are used by {other}: what servers and model did is of all" in shown
    assert f"what its servers did is also of run {other}" in " ".join(shown.split())


async def test_servers_alone_are_shown_with_the_evaluation_that_came_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_drivers(tmp_path, monkeypatch) as runs:
        look = await _look(runs["servers"])

    assert finished_in(look) == [22]
    assert "rollouts are of second; the same servers are used by first" in " ".join(
        lines_of(runs["servers"], look).split()
    )


async def test_an_evaluation_whose_servers_others_use_shows_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_drivers(tmp_path, monkeypatch, of_an_evaluation=True) as runs:
        own, guest = await _look(runs["servers"]), await _look(runs["first"])

    assert finished_in(own) == [90]
    assert finished_in(guest) == [11]
    assert own is not None
    assert guest is not None
    assert own.others == ("first", "second")
    assert guest.others == ("servers", "second")


async def test_a_driver_that_does_not_answer_leaves_no_rollouts_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_drivers(tmp_path, monkeypatch) as runs:
        gone = replace(
            runs["second"], extra={**runs["second"].extra, "figures_url": "http://[::1]:1"}
        )
        with RunEntry(gone):
            look = await _look(gone)

    assert finished_in(look) == []
    assert look is not None
    assert look.silent == ("driver",)
