"""Going on where a run stopped: what is skipped, what is tried again, what is refused."""

import json
from pathlib import Path

import pytest

from nemo_gym.errors import ResumeRefused, RunConflict
from nemo_gym.rollouts.prepare import RunRequest, prepare_run
from support.rollouts import (
    FakeAgent,
    FakeAnswer,
    Row,
    collect,
    files_of,
    lines_of,
    pairs_of,
    put,
    rows_of,
    text_of,
    write_rows,
)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "x.jsonl"


async def _fails(_: Row) -> FakeAnswer:
    return FakeAnswer(500, b"boom")


async def test_what_is_finished_is_not_run_again(output: Path) -> None:
    await collect(output, rows_of(4), limit=2)
    agent = FakeAgent()

    report = await collect(output, rows_of(4), agent, mode="resume")

    assert sorted(row["n"] for row in agent.rows) == [2, 3]
    assert sorted(pairs_of(output)) == [(t, 0) for t in range(4)]
    assert (report.finished, report.exit_code) == (4, 0)


async def test_more_repeats_add_what_is_missing(output: Path) -> None:
    await collect(output, rows_of(3))
    agent = FakeAgent()

    await collect(output, rows_of(3), agent, mode="resume", num_repeats=2)

    assert sorted(row["_ng_rollout_index"] for row in agent.rows) == [1, 1, 1]
    assert len(lines_of(output)) == 6
    assert len(lines_of(files_of(output).materialized)) == 6


async def test_failures_are_tried_again_under_the_next_attempt_then_left_alone(
    output: Path,
) -> None:
    for session in range(5):
        agent = FakeAgent(_fails)
        report = await collect(output, rows_of(1), agent, mode="resume")
        sent = [row.get("_ng_attempt_index", 0) for row in agent.rows]
        assert sent == ([session] if session < 3 else [])
        assert ("left alone" in str(report.warnings)) == (session >= 2)

    (failure,) = lines_of(files_of(output).failures)
    assert failure["_ng_attempt_index"] == 2
    retried = lines_of(files_of(output).retried)
    assert [row.get("_ng_attempt_index", 0) for row in retried] == [0, 1]


async def test_a_failure_that_succeeds_later_is_no_failure_any_more(output: Path) -> None:
    await collect(output, rows_of(2), FakeAgent(_fails))
    report = await collect(output, rows_of(2), mode="resume")

    assert lines_of(files_of(output).failures) == []
    assert [row["_ng_attempt_index"] for row in lines_of(output)] == [1, 1]
    assert (report.exit_code, dict(report.failed)) == (0, {})


async def test_more_attempts_can_be_allowed(output: Path) -> None:
    for _ in range(2):
        await collect(output, rows_of(1), FakeAgent(_fails), mode="resume", max_rollout_attempts=1)
    agent = FakeAgent(_fails)

    await collect(output, rows_of(1), agent, mode="resume", max_rollout_attempts=2)

    assert [row["_ng_attempt_index"] for row in agent.rows] == [1]


async def test_a_torn_last_line_costs_its_rollout_and_nothing_else(output: Path) -> None:
    await collect(output, rows_of(3))
    put(output, text_of(output)[:-9])
    agent = FakeAgent()

    report = await collect(output, rows_of(3), agent, mode="resume")

    assert len(agent.rows) == 1
    assert sorted(pairs_of(output)) == [(0, 0), (1, 0), (2, 0)]
    assert report.warnings == ("lines dropped that a crash had damaged: 1",)


async def test_resuming_what_never_began_begins_it(output: Path) -> None:
    report = await collect(output, rows_of(2), mode="resume")

    assert report.finished == 2


async def test_the_summary_covers_all_sessions(output: Path) -> None:
    async def half(row: Row) -> FakeAnswer:
        return FakeAnswer(200, {"reward": row["n"] % 2})

    await collect(output, rows_of(4), FakeAgent(half), limit=2)
    report = await collect(output, rows_of(4), FakeAgent(half), mode="resume")

    (agent,) = report.agents
    assert agent.agent_metrics["mean/reward"] == 0.5
    assert agent.summary.finished == 4


TREE = {"policy_model_name": "a", "policy_model": {"port": 1, "temperature": 0.5}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tree": {**TREE, "policy_model_name": "b"}}, "policy_model_name: a → b"),
        (
            {"tree": {**TREE, "policy_model": {"port": 1, "temperature": 1}}},
            "policy_model.temperature: 0.5 → 1",
        ),
        ({"tree": {**TREE, "extra": True}}, "extra: not set → True"),
        ({"agent": None}, "--agent: solver → None"),
        ({"num_repeats": 1}, "--num-repeats: 2 → 1, which is fewer"),
        ({"limit": 2}, "rows taken from the input: 3 → 2, which is fewer"),
        ({"rows": [*rows_of(2), {**rows_of(3)[2], "n": 9}]}, "first 3 rows are not those"),
        ({"rows": rows_of(4)}, "rows in the input: 3 → 4"),
    ],
)
async def test_a_change_is_refused_and_named(output: Path, change: Row, said: str) -> None:
    began: Row = {"rows": rows_of(3), "tree": TREE, "num_repeats": 2}
    if "agent" in change:
        began["rows"] = [{**row, "agent_ref": {"name": "solver"}} for row in rows_of(3)]
    await collect(output, **began)
    before = text_of(output), text_of(files_of(output).manifest)

    with pytest.raises(ResumeRefused) as told:
        await collect(output, **{**began, **change}, mode="resume")

    assert said in str(told.value)
    assert (text_of(output), text_of(files_of(output).manifest)) == before


@pytest.mark.parametrize(
    "tree",
    [
        {**TREE, "policy_model": {"port": 2, "temperature": 0.5}},
        {**TREE, "head_server": {"port": 12000}},
        {**TREE, "telemetry": {"metrics": {"enabled": True}}},
        {**TREE, "responses_create_params": {}},  # as of servers that run already
    ],
)
async def test_where_and_how_it_runs_may_change(output: Path, tree: Row) -> None:
    await collect(output, rows_of(1), tree=TREE)

    report = await collect(output, rows_of(1), tree=tree, mode="resume")

    assert report.finished == 1


async def test_a_run_goes_on_whose_manifest_shows_what_is_hidden_today(output: Path) -> None:
    shown, hidden = ({"extra_headers": {"X-My-Auth": text}} for text in ("planted-1", "***"))
    await collect(output, rows_of(1), tree={"policy_model": shown})

    report = await collect(output, rows_of(1), tree={"policy_model": hidden}, mode="resume")

    assert report.finished == 1
    assert "planted-1" not in text_of(files_of(output).manifest)


async def test_a_model_may_be_reached_elsewhere_and_the_manifest_says_so(output: Path) -> None:
    urls = ["http://127.0.0.1:5000/v1", "http://127.0.0.1:6000/v1", "http://h/v1"]
    for url in urls:
        await collect(output, rows_of(1), tree={"policy_base_url": url}, mode="resume")

    manifest = json.loads(text_of(files_of(output).manifest))
    assert [session.get("moved") for session in manifest["sessions"]] == [
        None,
        None,  # the kernel may choose another port each time
        ["policy_base_url: http://127.0.0.1:6000/v1 → http://h/v1"],
    ]
    assert manifest["config"] == {"policy_base_url": "http://h/v1"}


async def test_an_output_that_no_manifest_explains_is_not_resumed(output: Path) -> None:
    put(output, '{"reward": 1}\n')

    with pytest.raises(ResumeRefused, match=r"there is no x_run\.json"):
        await collect(output, rows_of(1), mode="resume")


async def test_a_manifest_that_cannot_be_read_is_not_guessed_at(output: Path) -> None:
    await collect(output, rows_of(1))
    put(files_of(output).manifest, "{}")

    with pytest.raises(ResumeRefused, match="cannot be read"):
        await collect(output, rows_of(1), mode="resume")


def _request(tmp_path: Path, name: str) -> RunRequest:
    rows = write_rows(tmp_path / "rows.jsonl", rows_of(2))
    return RunRequest((rows,), tmp_path / name, agent="solver", mode="resume")


def test_a_second_run_on_the_same_output_is_refused_and_told_which(tmp_path: Path) -> None:
    first = prepare_run(_request(tmp_path, "x.jsonl"), {})

    with pytest.raises(RunConflict, match=r"x\.jsonl \(process \d+ on "):
        prepare_run(_request(tmp_path, "x.jsonl"), {})

    first.close()
    prepare_run(_request(tmp_path, "x.jsonl"), {}).close()
    assert not files_of(tmp_path / "x.jsonl").lock.exists()


def test_a_second_run_with_the_same_capture_ids_is_refused_and_told_which(tmp_path: Path) -> None:
    captures = tmp_path / "captures"
    first = prepare_run(_request(tmp_path, "x.jsonl"), {}, capture_dir=captures)

    with pytest.raises(RunConflict, match=r"same rollout ids: .*x\.jsonl \(process"):
        prepare_run(_request(tmp_path, "y.jsonl"), {}, capture_dir=captures)

    assert not (tmp_path / "y_run.json").exists()
    prepare_run(_request(tmp_path, "y.jsonl"), {}, capture_dir=tmp_path / "others").close()
    first.close()
    prepare_run(_request(tmp_path, "y.jsonl"), {}, capture_dir=captures).close()


def test_runs_with_ids_of_their_own_may_share_a_capture_directory(tmp_path: Path) -> None:
    captures = tmp_path / "captures"
    held = []
    for name, start in (("x", 0), ("y", 10)):
        rows = [{**row, "_ng_task_index": start + n} for n, row in enumerate(rows_of(3))]
        rows.append({**rows_of(1)[0], "_ng_rollout_id": f"{name}-own"})
        path = write_rows(tmp_path / f"{name}_rows.jsonl", rows)
        request = RunRequest((path,), tmp_path / f"{name}.jsonl", agent="solver")
        held.append(prepare_run(request, {}, capture_dir=captures))

    for run in held:
        run.close()
