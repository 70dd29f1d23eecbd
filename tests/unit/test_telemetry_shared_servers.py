"""Two evaluations on the same servers: nothing of one is concluded from calls of both."""

from dataclasses import replace

import pytest

from nemo_gym.runtime.registry import LiveRun
from nemo_gym.runtime.sharing import Sharing, evaluations_at
from nemo_gym.telemetry.figures import FigureSnapshot, LoopFigures, RolloutFigures, snapshot
from nemo_gym.telemetry.lags import Lags
from nemo_gym.telemetry.run_view import diagnose_run, view_run
from nemo_gym.telemetry.series import HistogramReading

SERVERS = LiveRun("s", "env start", 1, 1.0, 10.0, "http://127.0.0.1:1", "/", "/logs")
MINE = replace(
    SERVERS, run_id="mine", kind="eval run", pid=2, started_at=20.0,
    extra={"figures_url": "http://127.0.0.1:2", "servers_of": "s"},
)  # fmt: skip
THEIRS = replace(MINE, run_id="theirs", pid=3, started_at=15.0, head_url="http://localhost:1")
APART = replace(
    MINE, run_id="apart", pid=4, head_url="http://127.0.0.1:9", extra={"servers_of": "x"}
)
OWNER = replace(SERVERS, run_id="owner", kind="eval run")
ON_OWNER = replace(MINE, run_id="guest", extra={"servers_of": "owner"})


@pytest.mark.parametrize(
    ("servers", "alive", "users"),
    [
        (SERVERS, [SERVERS, MINE, THEIRS, APART], ["theirs", "mine"]),
        (MINE, [SERVERS, MINE, THEIRS, APART], ["theirs", "mine"]),
        (APART, [SERVERS, MINE, THEIRS, APART], ["apart"]),
        (SERVERS, [SERVERS], []),
        (ON_OWNER, [OWNER, ON_OWNER, APART], ["owner", "guest"]),
    ],
    ids=["servers", "a-driver", "a-driver-of-others", "idle-servers", "servers-of-an-evaluation"],
)
def test_evaluations_are_found_by_the_servers_that_they_use(
    servers: LiveRun, alive: list[LiveRun], users: list[str]
) -> None:
    assert [run.run_id for run in evaluations_at(servers, alive)] == users


async def test_an_evaluation_remembers_every_other_that_used_its_servers() -> None:
    looks = iter([[SERVERS, MINE], [SERVERS, MINE, THEIRS, APART], [SERVERS, MINE]])
    sharing = Sharing(lambda: next(looks), pid=MINE.pid)

    for _ in range(3):
        await sharing.look()

    assert sharing.others == ("theirs",)


def servers(lag_ms: float = 1.0, calls: int = 900, call_s: float = 4.0) -> FigureSnapshot:
    """Return servers that answered calls of two runs and were late for both."""
    lags = Lags()
    for _ in range(30):
        lags.record(lag_ms)
    loop = LoopFigures(
        *(lag_ms, lag_ms, lag_ms, 0.0, 0, 0.0, None, None, 1, 1), observed_s=30, lag=lags.read()
    )
    taken = snapshot("cell-0")
    took = HistogramReading((call_s, call_s * 1.01), (0, calls, 0), call_s * calls)
    failed = {"rate_limit": calls}
    model = replace(taken.model, calls=calls, errors=calls // 2, duration=took, failures=failed)
    return replace(taken, model=model, loop=loop, rollouts=None)


def driver(active_s: float = 90.0, waited_s: float = 10.0) -> FigureSnapshot:
    """Return a driver whose rollouts called the provider little."""
    rollouts = RolloutFigures(
        100, 100, 8, 8, 60, 0, 60.0, waited_s, active_s, most_active=8, ran_s=30
    )
    return replace(snapshot("driver"), rollouts=rollouts, pid=2)


def test_calls_of_two_runs_are_no_evidence_for_one() -> None:
    both = [driver(waited_s=500.0), servers()]

    alone, shared = diagnose_run(both), diagnose_run(both, (), ("theirs",))

    assert alone.bottleneck == "provider_errors"
    assert shared.bottleneck == "shared_servers"
    assert str(shared) == (
        "rollouts waited 85 % of the time for admission; loop lag p99 1 ms; 8 active: no more is "
        "told of this run: what its servers did is also of run theirs"
    )


def test_a_held_loop_slows_down_both_and_is_named_to_each() -> None:
    found = diagnose_run([driver(), servers(lag_ms=300.0)], (), ("theirs", "third"))

    assert found.bottleneck == "event_loop"
    assert found.advice.endswith("; the same servers are used by runs theirs, third")


def test_a_live_view_concludes_no_more_than_the_end_of_the_run() -> None:
    view = view_run([driver(), servers()], others=("theirs",))

    assert view.diagnosis == diagnose_run([driver(), servers()], (), ("theirs",))
