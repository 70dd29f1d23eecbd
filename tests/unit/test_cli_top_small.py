"""`gym top` on small screens: no title over nothing, no row left out beside free ones."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.cli.top_frame import frame
from nemo_gym.telemetry.diagnosis import Figures, diagnose
from nemo_gym.telemetry.run_view import RunView, ServerView
from support.top_views import HEADER, VIEW

FOUR = tuple(ServerView(f"server-{n}", 4, 1.0, 0) for n in range(4))
OFF = replace(VIEW, servers=FOUR, observed=False)
ON = replace(VIEW, servers=FOUR, processes=VIEW.processes * 4)
SIZES = st.tuples(st.integers(20, 200), st.integers(4, 60))


def test_rows_that_the_other_table_leaves_are_used() -> None:
    lines = [line.text for line in frame(OFF, HEADER, 40, 24)]

    assert [line.split()[0] for line in lines if line.startswith("server-")] == [
        "server-0", "server-1", "server-2", "server-3",
    ]  # fmt: skip
    assert "telemetry.metrics.enabled=true" in " ".join(lines)


@pytest.mark.parametrize("view", [ON, OFF], ids=["on", "off"])
@given(size=SIZES)
def test_no_title_stands_over_nothing_and_nothing_is_summed_up_beside_free_lines(
    view: RunView, size: tuple[int, int]
) -> None:
    lines = [line.text for line in frame(view, HEADER, *size)]

    for number, line in enumerate(lines):
        if line.split()[:1] in (["server"], ["process"]):
            assert lines[number + 1].startswith(("server-", "driver"))
    if any(line.startswith("and ") for line in lines):
        assert len(lines) >= size[1] - 1
    assert len(lines) <= size[1]


@given(size=SIZES)
def test_advice_is_whole_wherever_the_screen_can_hold_it(size: tuple[int, int]) -> None:
    width, height = size
    said = diagnose(Figures(outside_share=0.7, outside_s=1.0, loop_lag_p99_ms=3.0))

    lines = frame(replace(VIEW, diagnosis=said), HEADER, width, height)

    shown = " ".join(line.text.strip() for line in lines if line.style == "cyan")
    assert shown.endswith(said.advice) or (len(lines) == height and shown.endswith(" …"))
    assert shown.endswith(said.advice) or width * height < 2 * len(said.advice)


@pytest.mark.parametrize("height", [24, 200])
def test_evidence_is_whole_where_lines_are_free(height: int) -> None:
    held = Figures(
        rounds=15,
        admission_wait_share=0.66,
        provider_share=0.7,
        provider_p50_s=0.304,
        loop_lag_p99_ms=70.0,
        loop_lag_of="driver (slowenv, policy_model, slowenv_agent)",
        loop_held_share=0.12,
        active=8,
    )
    said = diagnose(held)

    lines = frame(replace(VIEW, diagnosis=said), HEADER, 80, height)

    shown = " ".join(line.text.strip() for line in lines if line.style == "cyan")
    assert all(part in shown for part in said.evidence)


def test_a_screen_that_ends_first_says_that_there_is_more() -> None:
    lines = [line.text for line in frame(VIEW, HEADER, 20, 3)]

    assert len(lines) == 3
    assert lines[0].startswith("bottleneck:")
    assert lines[-1].endswith(" …")
