"""The screen of `gym top`: fits any terminal, shows counts always, says what it cannot know."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.cli.top import History
from nemo_gym.cli.top_frame import frame
from nemo_gym.telemetry.diagnosis import (
    _RULES,
    Diagnosis,
    Figures,
    _evidence,
    _Rule,
)
from nemo_gym.telemetry.figures import snapshot
from nemo_gym.telemetry.run_view import ProcessView, RolloutView, RunView, ServerView
from support.top_views import COUNTS, HEADER, VIEW


def text(view: RunView, width: int = 80, height: int = 24) -> str:
    return "\n".join(line.text for line in frame(view, HEADER, width, height))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 24), (200, 60)])
def test_processes_that_did_not_answer_are_named(width: int, height: int) -> None:
    lines = frame(VIEW, replace(HEADER, silent=("cell-0", "cell-3")), width, height)

    said = " ".join(line.text for line in lines)
    assert "cell-0, cell-3 did not answer" in said
    assert len(lines) <= height
    assert all(len(line.text) <= width for line in lines)
    assert "raise --concurrency" in said


def test_a_run_is_shown_on_eighty_by_twenty_four() -> None:
    lines = frame(VIEW, HEADER)

    assert len(lines) <= 24
    assert max(len(line.text) for line in lines) <= 80


@pytest.mark.parametrize(
    "words",
    [
        "eval run 1784846522-c3c0e1  0:03:12  results/mcqa.jsonl",
        "412/1,000  41%  3.2/s  eta 0:03:04  reward 0.512",
        "offered 476  resident 64  active 32  finished 400  failed 12",
        "12.4 calls/s  32 in flight  p50 2.1 s  errors 3  retries 17",
        "3,210 in/s  812 out/s  tools 1,234  captured 1,640",
        "bottleneck: admission. rollouts waited 61 % of the time for admission",
        "raise --concurrency",
    ],
)
def test_the_screen_says(words: str) -> None:
    assert words in text(VIEW)


def test_each_server_and_process_has_a_line_of_numbers() -> None:
    shown = text(VIEW).splitlines()

    [server] = [line.split() for line in shown if line.startswith("policy_model")]
    [process] = [line.split() for line in shown if line.startswith("driver")]
    assert server == ["policy_model", "32", "12.4", "3"]
    assert process == ["driver", "1.0", "ms", "3.2", "ms", "1%", "12%", "82", "MB"]


def test_while_telemetry_is_off_counts_show_and_the_switch_is_named() -> None:
    off = replace(VIEW, observed=False, processes=(ProcessView("driver", 1, *[None] * 5),))

    shown = text(off)

    assert "telemetry.metrics.enabled=true" in shown
    assert "412/1,000" in shown
    assert "lag p99  " not in shown


def test_a_run_without_a_driver_says_so() -> None:
    assert "no driver in this run" in text(replace(VIEW, rollouts=None))


def test_a_run_of_unknown_length_shows_no_bar() -> None:
    counts = replace(COUNTS, planned=None)
    shown = text(replace(VIEW, rollouts=RolloutView(counts, 3.2, None, None)))

    assert "412 ended  3.2/s  eta -" in shown
    assert "reward -" in shown


def test_large_counts_still_fit() -> None:
    counts = replace(
        COUNTS, planned=10**6, offered=900_000, resident=1064, active=1000, finished=898_000,
        failed=1936,
    )  # fmt: skip
    shown = text(replace(VIEW, rollouts=RolloutView(counts, 1234.5, 86_400.0, 0.5)))

    assert "offered 900,000  resident 1,064  active 1,000  finished 898,000  failed 1,936" in shown
    assert "899,936/1,000,000  90%  1,234/s  eta 24:00:00  reward 0.500" in shown


def test_a_resumed_run_says_how_many_were_finished_before() -> None:
    counts = replace(COUNTS, finished=400, finished_before=250)
    shown = text(replace(VIEW, rollouts=RolloutView(counts, 3.2, 184.0, 0.512)))

    assert "finished 400 (250 before)  failed 12" in shown


def test_a_row_that_was_not_captured_stands_out() -> None:
    assert "NOT CAPTURED 2" in text(replace(VIEW, capture_failures=2))


def test_servers_that_have_no_room_are_summed_up() -> None:
    many = tuple(ServerView(f"server-{n}", n, 1.0, 0) for n in range(40))

    shown = text(replace(VIEW, servers=many))

    assert "server-39" in shown
    assert "more, " in shown
    assert "bottleneck" in shown


def test_large_lags_have_units_and_stay_apart() -> None:
    late = replace(VIEW.processes[0], lag_p50_ms=11_221.0, lag_p99_ms=999.96)

    titles, row = [
        line for line in text(replace(VIEW, processes=(late,))).splitlines() if "lag" in line
        or line.startswith("driver")
    ][:2]  # fmt: skip

    assert row.split() == ["driver", "11.2", "s", "1.0", "s", "1%", "12%", "82", "MB"]
    assert (row.index("11.2 s") + 6, row.index("1.0 s") + 5) == (
        titles.index("lag p50") + 7,
        titles.index("lag p99") + 7,
    )


@pytest.mark.parametrize(
    "words",
    [
        "eval run 1784846522-c3c0e1  0:03:12",
        "412/1,000  41%  3.2/s",
        "eta 0:03:04  reward 0.512",
        "offered 476  resident 64",
        "failed 12",
        "12.4 calls/s  32 in flight",
        "p50 2.1 s  errors 3",
        "retries 17",
        "captured 1,640",
        "policy_model          32    12.4       3",
        "driver               3.2 ms    1%    12%",
        "bottleneck: admission. rollouts waited 61 % of the time for admission",
        "raise --concurrency, if the provider can take more",
    ],
)
def test_forty_columns_show_whole(words: str) -> None:
    lines = text(VIEW, width=40).splitlines()

    assert len(lines) <= 24
    assert max(map(len, lines)) <= 40
    assert words in "\n".join(lines) or words in " ".join(lines)


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (80, "process lag p50 lag p99 GC CPU RSS"),
        (57, "process lag p50 lag p99 GC CPU RSS"),
        (56, "process lag p99 GC CPU RSS"),
        (46, "process lag p99 GC CPU"),
        (36, "process lag p99 CPU"),
        (30, "process lag p99"),
    ],
)
def test_columns_of_less_worth_give_way_to_the_others(width: int, titles: str) -> None:
    lines = text(VIEW, width, 40).splitlines()

    assert titles in [" ".join(line.split()) for line in lines]


def test_while_telemetry_is_off_the_switch_is_whole_on_forty_columns_too() -> None:
    lines = text(replace(VIEW, observed=False), width=40).splitlines()

    assert "telemetry.metrics.enabled=true" in " ".join(lines)


names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=120)
numbers = st.none() | st.floats(0, 1e9)


@given(
    st.lists(st.builds(ServerView, names, st.integers(0, 10**7), numbers, st.just(0)), max_size=60),
    st.lists(
        st.builds(ProcessView, names, st.just(1), numbers, numbers, numbers, numbers, st.just(1)),
        max_size=60,
    ),
    st.integers(20, 300),
    st.integers(10, 80),
)
def test_whatever_is_shown_fits_the_terminal(
    servers: list[ServerView], processes: list[ProcessView], width: int, height: int
) -> None:
    view = replace(VIEW, servers=tuple(servers), processes=tuple(processes))

    lines = frame(view, HEADER, width, height)

    assert len(lines) <= height
    assert all(len(line.text) <= width for line in lines)
    assert next(line.text for line in lines if line.style == "cyan").startswith("bottleneck:")
    assert "\n" not in "".join(line.text for line in lines)


@given(st.builds(ProcessView, st.just("p"), st.just(1), *[st.floats(0, 1e9)] * 4, st.just(2**50)))
def test_numbers_of_any_size_never_run_into_each_other(one: ProcessView) -> None:
    [row] = [
        line.text
        for line in frame(replace(VIEW, processes=(one,)), HEADER, 200)
        if line.text.startswith("p ")
    ]

    shapes = r"p +[\d,.]+ m?s +[\d,.]+ m?s +\d+% +\d+% +[\d,]+ MB"
    assert re.fullmatch(shapes, row)


@pytest.mark.parametrize("height", [24, 40])
def test_the_bottleneck_is_on_the_screen_however_many_servers_there_are(height: int) -> None:
    servers = tuple(ServerView(f"server-{n}", n, 1.0, 0) for n in range(90))
    processes = tuple(replace(VIEW.processes[0], name=f"cell-{n}") for n in range(90))

    shown = text(replace(VIEW, servers=servers, processes=processes), height=height)

    assert "raise --concurrency" in shown


def test_rates_are_over_the_last_seconds_of_looks() -> None:
    history = History(window_s=10.0)
    taken = snapshot("cell-0")

    rates = []
    for second in range(31):
        model = replace(taken.model, calls=second**2)
        look = replace(taken, taken_at=float(second), model=model)
        rates.append(history.add(float(second), [look]).model_rate)

    # Over the last ten seconds: 900 - 400 calls in 10 s, not 900 in 30.
    assert rates[-1] == 50.0


EVERYTHING = Figures(
    **{  # type: ignore[arg-type]
        name: "cell-0 (workplace_tools, workplace_tools_simple_agent, policy_model and 2 more)"
        if name.endswith("_of")
        else 12345.6
        for name in Figures.__dataclass_fields__
    }
)


@pytest.mark.parametrize("rule", _RULES, ids=lambda rule: f"{rule.bottleneck}: {rule.advice[:20]}")
def test_advice_is_shown_whole_with_the_evidence_that_decided(rule: _Rule) -> None:
    evidence = _evidence(EVERYTHING, rule.shown)
    said = Diagnosis(rule.bottleneck, evidence, rule.advice)

    lines = frame(replace(VIEW, diagnosis=said), HEADER)

    shown = " ".join(line.text.strip() for line in lines if line.style == "cyan")
    assert len(lines) <= 24
    assert shown.endswith(rule.advice)
    assert evidence[0] in shown
