"""Law of resuming: whatever a crash left, at the end every pair is there exactly once."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym.files.jsonl import JsonlAppender
from nemo_gym.ids import RolloutId
from nemo_gym.rollouts.aggregate import Aggregator
from nemo_gym.rollouts.leftovers import index_run, settle_failures
from nemo_gym.rollouts.lines import Members, split_members
from nemo_gym.rollouts.paths import RunFiles
from nemo_gym.rollouts.plan import PlannedRollout
from nemo_gym.rollouts.resume import Attempt, RunIndex

PAIRS = [(task, rollout) for task in range(3) for rollout in range(2)]
MOST = 3
REWARD, FAILED, CANCELLED, KILLED = "reward", "timeout", "cancelled", "killed"

outcomes = st.sampled_from([REWARD, FAILED, CANCELLED, KILLED])
sessions = st.fixed_dictionaries(
    {
        "order": st.permutations(PAIRS),
        "ends": st.dictionaries(st.sampled_from(PAIRS), outcomes),
        "cut_output": st.integers(0, 300),
        "cut_failures": st.integers(0, 300),
        "damage": st.booleans(),
    }
)


def planned() -> Iterator[PlannedRollout]:
    for task, rollout in PAIRS:
        yield PlannedRollout(task, rollout, "a", b'{"name":"a"}', None, b"{}")


def line_of(attempt: Attempt, end: str) -> bytes:
    task, rollout = attempt.planned.pair
    row: dict[str, object] = {"_ng_task_index": task, "_ng_rollout_index": rollout, "text": "é\n"}
    if attempt.attempt_index:
        row["_ng_attempt_index"] = attempt.attempt_index
    row |= {"reward": 1.0} if end == REWARD else {"_ng_failure_class": end}
    return json.dumps(row, ensure_ascii=False).encode()


@contextmanager
def run_files() -> Iterator[RunFiles]:
    with tempfile.TemporaryDirectory() as folder:
        yield RunFiles(Path(folder) / "x.jsonl")


def indexed(files: RunFiles) -> RunIndex:
    index = RunIndex(MOST)
    index_run(files, index, Aggregator(), frozenset())
    return index


def session(files: RunFiles, order: list[tuple[int, int]], ends: dict[tuple[int, int], str]) -> int:
    """Run what is pending, in any order, and settle it; return how many were dispatched."""
    index = indexed(files)
    attempts = {a.planned.pair: a for a in index.pending(planned())}
    with JsonlAppender(files.output) as output, JsonlAppender(files.failures) as failures:
        for pair in order:
            end = ends.get(pair, REWARD)
            if pair not in attempts or end == KILLED:
                continue
            line = line_of(attempts[pair], end)
            (output if end == REWARD else failures).append(line)
            if end == REWARD:
                index.add_finished(pair)
            else:
                index.add_failure(pair, split_members(line))
    settle_failures(files, index, Aggregator())
    return len(attempts)


def cut(path: Path, count: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: max(0, len(data) - count)])


def damage(path: Path) -> None:
    """Leave what a power cut can leave: a run of zeros in place of the first line."""
    data = path.read_bytes()
    first, end, rest = data.partition(b"\n")
    path.write_bytes(bytes(len(first)) + end + rest)


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def pairs(path: Path) -> list[tuple[object, object]]:
    return [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows(path)]


@settings(deadline=None, max_examples=50)
@given(st.lists(sessions, max_size=5))
def test_whatever_a_crash_left_every_pair_is_there_exactly_once_at_the_end(
    crashed: list[dict[str, object]],
) -> None:
    with run_files() as files:
        for one in crashed:
            session(files, one["order"], one["ends"])  # type: ignore[arg-type]
            cut(files.output, one["cut_output"])  # type: ignore[arg-type]
            cut(files.failures, one["cut_failures"])  # type: ignore[arg-type]
            if one["damage"]:
                damage(files.output)

        session(files, PAIRS, {})

        ended = Counter(pairs(files.output) + pairs(files.failures))
        assert ended == Counter(PAIRS)
        assert session(files, PAIRS, {}) == 0


@settings(deadline=None, max_examples=50)
@given(st.lists(st.dictionaries(st.sampled_from(PAIRS), outcomes), max_size=6))
def test_a_pair_is_tried_until_it_failed_as_often_as_allowed_and_never_under_an_old_id(
    ends: list[dict[tuple[int, int], str]],
) -> None:
    with run_files() as files:
        failed: Counter[tuple[int, int]] = Counter()
        done: set[tuple[int, int]] = set()
        used: set[tuple[tuple[int, int], int]] = set()
        for one in ends:
            attempts = list(indexed(files).pending(planned()))

            assert {a.planned.pair for a in attempts} == {
                pair for pair in PAIRS if pair not in done and failed[pair] < MOST
            }
            for attempt in attempts:
                pair, end = attempt.planned.pair, one.get(attempt.planned.pair, REWARD)
                assert (pair, attempt.attempt_index) not in used
                if end == KILLED:
                    continue
                used.add((pair, attempt.attempt_index))
                failed[pair] += end == FAILED
                if end == REWARD:
                    done.add(pair)
            session(files, PAIRS, one)


def test_where_every_id_seems_to_be_in_use_the_search_ends() -> None:
    (first, *_) = RunIndex(MOST).pending(planned(), lambda _: True)

    assert first.attempt_index > 100


@given(
    st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=6, unique_by=lambda e: e[0]),
    st.integers(1, 4),
    st.booleans(),
)
def test_each_attempt_counts_once_however_often_its_row_is_there(
    ends: list[tuple[int, bool]], most: int, twice: bool
) -> None:
    """Numbers are left out where an id was in use, and a crash can leave a row in two files."""
    index, pair = RunIndex(most), (0, 0)
    in_order = [(n, _failure(n, FAILED if failed else CANCELLED)) for n, failed in sorted(ends)]
    for _ in range(1 + twice):
        for _, row in in_order:
            index.add_failure(pair, row)
    failures = sum(failed for _, failed in ends)
    last = max((number for number, _ in ends), default=-1)
    attempts = {a.planned.pair: a.attempt_index for a in index.pending(planned())}

    assert index.exhausted == (failures >= most)
    assert attempts.get(pair) == (None if failures >= most else last + 1)
    assert [n for n, row in in_order if index.is_settled_by(pair, row)] == [last][: len(ends)]
    index.add_finished(pair)
    assert not any(index.is_settled_by(pair, row) for _, row in in_order)


def _failure(attempt: int, failure_class: str) -> Members:
    row = {"_ng_attempt_index": attempt, "_ng_failure_class": failure_class}
    return split_members(json.dumps(row).encode())


@given(st.sets(st.integers(0, 8)), st.integers(0, 3))
def test_an_attempt_never_takes_an_id_that_has_a_capture(used: set[int], failures: int) -> None:
    index = RunIndex(10)
    for attempt in range(failures):
        row = {"_ng_attempt_index": attempt, "_ng_failure_class": "timeout"}
        index.add_failure((0, 0), split_members(json.dumps(row).encode()))
    taken = {RolloutId("0-0" if n == 0 else f"0-0-a{n}") for n in used}

    attempts = index.pending(planned(), taken.__contains__)
    (first, *_) = attempts

    free = next(n for n in range(failures, 20) if n not in used)
    assert first.attempt_index == free
    assert first.rollout_id not in taken
