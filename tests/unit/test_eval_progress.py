"""What a run says of itself while it runs and when it has ended."""

import asyncio
import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from nemo_gym.cli.eval_report import print_agents, print_report, report_document
from nemo_gym.cli.progress import (
    ProgressDisplay,
    progress_text,
    shown_duration,
    shown_wall_time,
)
from nemo_gym.rollouts.aggregate import Aggregator, RolloutNumbers
from nemo_gym.rollouts.environment import EnvironmentMetrics
from nemo_gym.rollouts.paths import RunFiles
from nemo_gym.rollouts.progress import Progress
from nemo_gym.rollouts.run import RunReport
from nemo_gym.rollouts.summary import report_of


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.4, "0 s"), (59.4, "59 s"), (60, "1 m 00 s"), (125, "2 m 05 s"), (7260, "2 h 01 m")],
)
def test_durations_are_shown_as_people_read_them(seconds: float, shown: str) -> None:
    assert shown_duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.04, "40 ms"), (0.9996, "1.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (61, "1 m 01 s")],
)
def test_a_short_run_took_more_than_nothing(seconds: float, shown: str) -> None:
    assert shown_wall_time(seconds) == shown


def test_progress_tells_rate_mean_and_time_left() -> None:
    progress = Progress(total=100, done_before=20, reward_before=10, running=4)
    progress.finished, progress.reward_total = 18, 9.0
    progress.failed["timeout"] = 2

    text = progress_text(progress, 10.0)

    assert text == "40/100 · 2 failed · 4 running · 2.0/s · reward 0.500 · 30 s left"


def test_what_is_not_known_yet_is_not_told() -> None:
    assert progress_text(Progress(total=9, running=2), 3.0) == "0/9 · 2 running"


def test_a_slow_run_is_told_by_the_minute() -> None:
    progress = Progress(total=10, finished=1, reward_total=1)

    assert "2.0/min" in progress_text(progress, 30.0)


def test_a_run_that_fails_throughout_has_no_mean() -> None:
    progress = Progress(total=2, failed=Counter(agent_error=1))

    assert "reward" not in progress_text(progress, 1.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_a_terminal_shows_at_once_what_is_waited_for_and_nothing_of_it_after() -> None:
    out = Terminal()

    async with ProgressDisplay(out=out).waiting("starting 3 servers"):
        during = out.getvalue()

    assert during.endswith("starting 3 servers")
    assert out.getvalue() == f"{during}\r\x1b[K"


async def test_a_short_wait_leaves_nothing_in_a_file() -> None:
    out = io.StringIO()

    async with ProgressDisplay(out=out).waiting("starting 3 servers"):
        await asyncio.sleep(0)

    assert out.getvalue() == ""


async def test_a_short_run_shows_nothing() -> None:
    out = io.StringIO()

    async with ProgressDisplay(out=out).showing(Progress(total=1)):
        await asyncio.sleep(0)

    assert out.getvalue() == ""


def test_a_closed_terminal_does_not_end_a_run() -> None:
    out = io.StringIO()
    display = ProgressDisplay(out=out)
    out.close()

    display.say("hello")


def test_of_many_k_the_table_shows_the_largest(capsys: pytest.CaptureFixture[str]) -> None:
    aggregator = Aggregator()
    for task in range(2):
        for _ in range(4):
            aggregator.add(RolloutNumbers("solver", task, {"reward": float(task)}))
    (summary,) = aggregator.summaries()
    keys = {f"pass@{k}/reward": 0.5 for k in (1, 2, 4)} | {"share_of_a": 0.25}

    print_agents([report_of(summary, EnvironmentMetrics(key_metrics=keys))])

    out = capsys.readouterr().out
    assert ("pass@4/reward" in out, "pass@2/reward" in out) == (True, False)
    assert "share_of_a" in out


def _report() -> RunReport:
    aggregator = Aggregator()
    for task in range(10):
        tokens = {"tokens_in": 1000, "tokens_out": 5}
        values = {"reward": float(task % 2)}
        aggregator.add(RolloutNumbers("solver", task, values, tokens, 1500.0))
    aggregator.add_failure("solver", "timeout")
    aggregator.add_failure("crashed", "agent_error")
    environment = EnvironmentMetrics(notes=("the environment's own metrics are missing: boom",))
    agents = tuple(report_of(s, environment) for s in aggregator.summaries())
    return RunReport(
        status="interrupted",
        planned=20,
        finished=10,
        failed={"timeout": 1, "agent_error": 1},
        agents=agents,
        files=RunFiles(Path("out/x.jsonl")),
        wall_s=61.0,
        warnings=("beware",),
    )


def test_the_report_names_everything_a_person_needs(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(_report(), "the provider is slow")

    out = capsys.readouterr().out
    for text in (
        "0.500 [0.19",
        "10,000          50        1.5 s  1.5 s",
        "failed: 1 agent_error, 1 timeout",
        "not run: 8 of 20; go on with --resume",
        "wall time: 1 m 01 s",
        "diagnosis: the provider is slow",
        "out/x_failures.jsonl",
        "note: solver: the environment's own metrics are missing: boom",
    ):
        assert text in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_tables_of_an_agent_with_a_long_name_fit_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    aggregator = Aggregator()
    for task in range(100):
        tokens = {"tokens_in": 123_456, "tokens_out": 12_345}
        values = {"reward": float(task % 2), "num_tool_errors": 0.0}
        numbers = RolloutNumbers("workplace_tools_simple_agent", task, values, tokens, 45_900.0)
        aggregator.add(numbers)

    print_agents([report_of(s, EnvironmentMetrics()) for s in aggregator.summaries()])

    assert max(map(len, capsys.readouterr().out.splitlines())) <= 74  # and 6 for drawn columns


def test_a_class_of_failures_is_told_with_an_example(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = RunFiles(tmp_path / "x.jsonl")
    rows = [
        {"_ng_failure_class": "cancelled", "_ng_failure_message": "you stopped the run"},
        {"_ng_failure_class": "timeout", "_ng_failure_message": "silent\n for 3 s " + "." * 900},
        {"_ng_failure_class": "timeout", "_ng_failure_message": "another"},
    ]
    lines = [
        json.dumps({"_ng_task_index": 7, "_ng_rollout_index": n} | r) for n, r in enumerate(rows)
    ]
    files.failures.write_text("torn {\n" + "\n".join(lines))

    print_report(replace(_report(), files=files, failed={"timeout": 2, "cancelled": 1}))

    out = capsys.readouterr().out
    [example] = [line for line in out.splitlines() if line.startswith("  timeout")]
    assert example.startswith("  timeout, rollout 7-1: silent for 3 s ....")
    assert len(example) < 280
    assert "you stopped" not in out


def test_logs_are_named_where_something_was_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "driver.log").touch()
    print_report(_report(), None, tmp_path)
    silent = capsys.readouterr().out

    (tmp_path / "mcqa.log").write_text("WARNING: beware\n")
    print_report(_report(), None, tmp_path)

    assert "logs:" not in silent
    assert f"logs:      {tmp_path}" in capsys.readouterr().out


def test_a_resume_that_had_nothing_to_do_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    done = replace(_report(), finished=20, failed={}, ran=0)

    print_report(done)
    print_report(replace(done, ran=20))

    assert capsys.readouterr().out.count("nothing was left to run") == 1


def test_the_document_of_a_run_has_the_same_numbers() -> None:
    document = report_document(_report())

    assert (document["status"], document["pending"]) == ("interrupted", 8)
    assert document["failed_by_class"] == {"timeout": 1, "agent_error": 1}
    assert document["warnings"] == ["beware"]
