"""Reading captures and attaching them to rollouts: records, totals, gaps, clearing, waiting."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.errors import CaptureDamaged, ConfigMistake
from nemo_gym.ids import RolloutId
from nemo_gym.observability import model_calls
from nemo_gym.observability.model_calls import (
    aggregate_model_call_metrics,
    await_model_call_capture_quiescence,
    clear_model_call_captures_for_rollouts,
    merge_model_call_capture_into_record,
    model_call_capture_dirs_from_config,
    observability_enabled_from_config,
    read_available_model_call_records,
    read_model_call_records,
)
from support.disks import FaultyDisk

ROLLOUT = RolloutId("0-0")
RECORD = {"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 0.5, "response": {"id": "r"}}
EXCHANGE: dict[str, Any] = {
    "model_call_id": "863410a8d52e4be6a31efc5c6e9d4629",
    "dialect": "responses",
    "model_ref": {"type": "responses_api_models", "name": "policy_model"},
    "started_at": 1786032154.12,
    "completed_at": 1786032154.96,
    "latency_ms": 842.7,
    "latency_ttft_ms": 213.4,
    "status_code": 200,
    "error_category": None,
    "request": {"model": "gpt-4.1-2025-04-14", "input": [{"role": "user", "content": "Which?"}]},
    "response": {
        "id": "resp_123",
        "status": "completed",
        "usage": {"input_tokens": 94, "output_tokens": 28, "total_tokens": 122},
    },
}


def keep(store: CaptureStore, *exchanges: dict[str, Any]) -> None:
    for number, exchange in enumerate(exchanges):
        line = json.dumps({**exchange, "model_call_id": f"c{number}"}).encode()
        store.submit(Row(ROLLOUT, f"c{number}", line)).result()


@pytest.fixture
def store(tmp_path: Path) -> Any:
    store = CaptureStore(tmp_path)
    yield store
    store.close()


def test_the_documented_record_is_read_as_documented(store: CaptureStore) -> None:
    keep(store, EXCHANGE, EXCHANGE)
    calls = read_model_call_records(store, "0-0")

    assert [call.call_index for call in calls] == [0, 1]
    assert calls[0].response_id == "resp_123"
    assert calls[0].latency_total_ms == 842.7
    assert (calls[0].tokens_in, calls[0].tokens_out, calls[0].tokens_reasoning) == (94, 28, None)
    assert calls[0].request == EXCHANGE["request"]
    assert aggregate_model_call_metrics(store, "0-0") == {
        "tokens_in": 188,
        "tokens_out": 56,
        "tokens_reasoning": None,
        "tokens_total": 244,
        "cached_tokens": None,
        "latency_total_ms": 1685.4,
        "num_calls": 2,
    }


def test_damage_is_counted_by_one_reader_and_raised_by_the_other(store: CaptureStore) -> None:
    keep(store, EXCHANGE)
    with (store.directory / "0-0.capture.jsonl").open("ab") as file:
        file.write(b'{"torn": \n{"again"')
    calls, damaged = read_available_model_call_records(store, "0-0")

    assert (len(calls), damaged) == (1, 2)
    with pytest.raises(CaptureDamaged, match=r"2 of .*0-0\.capture\.jsonl:2"):
        read_model_call_records(store, "0-0")
    with pytest.raises(CaptureDamaged):
        aggregate_model_call_metrics(store, "0-0")


def test_the_merge_adds_one_key_and_touches_nothing_else(store: CaptureStore) -> None:
    keep(store, EXCHANGE)
    record: dict[str, Any] = json.loads(json.dumps(RECORD))
    merged = merge_model_call_capture_into_record(record, [store.directory])

    assert merged is record
    attachment = record.pop("ng_model_call_capture")
    assert record == RECORD
    assert list(attachment) == ["rollout_id", "metrics", "calls"]
    assert attachment["rollout_id"] == "0-0"
    (call,) = attachment["calls"]
    assert list(attachment["metrics"]) == [
        "tokens_in",
        "tokens_out",
        "tokens_reasoning",
        "tokens_total",
        "cached_tokens",
        "latency_total_ms",
        "num_calls",
    ]
    assert call["tokens_reasoning"] is None
    assert call["model_ref"] == {"type": "responses_api_models", "name": "policy_model"}
    assert not {"request", "response", "request_raw", "response_raw"} & set(call)


def test_the_merge_includes_payloads_when_asked(store: CaptureStore) -> None:
    keep(store, EXCHANGE)
    record = merge_model_call_capture_into_record(dict(RECORD), [store.directory], True)

    (call,) = record["ng_model_call_capture"]["calls"]
    assert call["request"] == EXCHANGE["request"]
    assert call["response"] == EXCHANGE["response"]
    assert call["response_raw"] is None


def gaps_of(directory: Path) -> list[dict[str, str]]:
    record = merge_model_call_capture_into_record(dict(RECORD), [directory])
    gaps: list[dict[str, str]] = record["ng_model_call_capture"].get("gaps", [])
    return gaps


def test_every_reason_for_missing_evidence_is_a_gap(store: CaptureStore) -> None:
    directory = store.directory
    seen = [gaps_of(directory)]
    keep(store, EXCHANGE)
    seen.append(gaps_of(directory))
    claim = store.claim(ROLLOUT)
    seen.append(gaps_of(directory))
    claim.release()
    store.mark_incomplete(ROLLOUT, "a reason")
    store.flush()
    seen.append(gaps_of(directory))
    for damage in (b"{\n", b"{\n{\n"):
        (directory / "0-0.capture.jsonl").write_bytes(damage)
        seen.append(gaps_of(directory))

    assert seen == [
        [{"code": "model_call_capture_no_records"}],
        [],
        [{"code": "model_call_capture_pending"}],
        [{"code": "model_call_capture_incomplete"}],
        *(
            [
                {"code": "model_call_capture_records_unreadable", "detail": f"count={count}"},
                {"code": "model_call_capture_incomplete"},
            ]
            for count in (1, 2)
        ),
    ]


def test_a_capture_that_cannot_be_read_at_all_is_a_gap(tmp_path: Path) -> None:
    (tmp_path / "0-0.capture.jsonl").mkdir()

    assert gaps_of(tmp_path) == [
        {"code": "model_call_capture_unreadable", "detail": "IsADirectoryError"}
    ]


def test_a_record_whose_id_is_none_gets_a_gap_and_keeps_its_reward(tmp_path: Path) -> None:
    record = {"_ng_rollout_id": "../etc", "reward": 1.0}
    merged = merge_model_call_capture_into_record(dict(record), [tmp_path])

    assert merged["reward"] == 1.0
    attached = merged["ng_model_call_capture"]
    assert attached["rollout_id"] == "../etc"
    assert attached["metrics"]["num_calls"] == 0
    assert attached["gaps"] == [
        {"code": "model_call_capture_unreadable", "detail": "InvalidRolloutId"}
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_of_several_directories_a_cleared_one_hides_nothing_of_another(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    first, second = CaptureStore(tmp_path / "a"), CaptureStore(tmp_path / "b")
    directories = [tmp_path / name for name in order]
    for store in (first, second):
        keep(store, EXCHANGE)
    clear_model_call_captures_for_rollouts([RECORD], directories)
    keep(second, EXCHANGE, EXCHANGE)
    claim = first.claim(ROLLOUT)
    first.mark_incomplete(ROLLOUT, "a reason")
    first.flush()
    merged = merge_model_call_capture_into_record(dict(RECORD), directories)
    claim.release()

    attached = merged["ng_model_call_capture"]
    assert attached["metrics"]["num_calls"] == 2
    assert [gap["code"] for gap in attached["gaps"]] == [
        "model_call_capture_incomplete",
        "model_call_capture_pending",
    ]
    first.close()
    second.close()


def test_the_rollout_is_found_in_whichever_directory_has_it(tmp_path: Path) -> None:
    second = CaptureStore(tmp_path / "b")
    keep(second, EXCHANGE)
    record = merge_model_call_capture_into_record(dict(RECORD), [tmp_path / "a", tmp_path / "b"])

    assert record["ng_model_call_capture"]["metrics"]["num_calls"] == 1
    second.close()


def test_without_capture_or_without_an_id_the_record_is_left_alone(tmp_path: Path) -> None:
    assert merge_model_call_capture_into_record(dict(RECORD), []) == RECORD
    assert merge_model_call_capture_into_record({"reward": 1.0}, [tmp_path]) == {"reward": 1.0}


def test_the_documented_helpers_judge_by_what_is_there() -> None:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
    function = {"name": "f", "arguments": '{"a": 1}'}
    response = {"choices": [{"message": {"tool_calls": [{"id": "t", "function": function}]}}]}

    assert model_calls.extract_token_stats(usage)["tokens_in"] == 125
    assert model_calls._cache_signal(usage) == (True, 100)
    assert model_calls._as_arguments('{"a": 1}') == {"a": 1}
    assert [model_calls._token_count(value) for value in (0, True, -1, "1")] == [
        0,
        None,
        None,
        None,
    ]
    assert model_calls._tool_calls_and_reasoning(response) == (
        [{"call_id": "t", "name": "f", "arguments": {"a": 1}}],
        None,
    )
    details = {"a": {"x": True}, "b": {"x": 3}}
    assert model_calls._usage_detail_token(details, ("a", "b"), ("x",)) == 3


class RunRequest(BaseModel):
    model_config = ConfigDict(extra="allow")


def test_clearing_takes_rows_of_every_kind_and_leaves_other_attempts(store: CaptureStore) -> None:
    keep(store, EXCHANGE)
    other = RolloutId("0-0-a1")
    store.submit(Row(other, "other", b'{"model_call_id":"other"}')).result()
    missing = store.directory / "missing"
    row = RunRequest.model_validate({"_ng_task_index": 0, "_ng_rollout_index": 0})
    clear_model_call_captures_for_rollouts([{"no": "id"}, row], [store.directory, missing])

    assert store.rollouts() == [other]
    assert not missing.exists()


async def test_quiescence_waits_for_a_claim_and_says_when_it_gave_up(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = CaptureStore(tmp_path, disk=disk)
    store.open_for_writing()
    disk.sync_delay_s = 0.2
    store.submit(Row(ROLLOUT, "c", b'{"model_call_id":"c"}'), store.claim(ROLLOUT))

    assert not await await_model_call_capture_quiescence("0-0", [tmp_path], timeout_s=0.01)
    assert await await_model_call_capture_quiescence("0-0", [tmp_path], poll_s=0.01)
    assert len(read_model_call_records(store, "0-0")) == 1
    assert await await_model_call_capture_quiescence("0-0", [])
    store.close()


async def test_waiting_never_takes_longer_than_it_may(store: CaptureStore) -> None:
    claim = store.claim(ROLLOUT)
    async with asyncio.timeout(60):
        done = await await_model_call_capture_quiescence(
            "0-0", [store.directory], timeout_s=0.01, poll_s=3600
        )
    claim.release()

    assert not done


async def test_waiting_leaves_the_loop_free(store: CaptureStore) -> None:
    claim = store.claim(ROLLOUT)
    waiting = asyncio.create_task(
        await_model_call_capture_quiescence("0-0", [store.directory], 10.0, 0.001)
    )
    await asyncio.sleep(0)
    claim.release()

    assert await waiting


@pytest.mark.parametrize(
    ("config", "enabled"),
    [
        (None, False),
        ({}, False),
        ({"observability_enabled": True}, True),
        ({"observability_enabled": "True"}, True),  # as an environment variable says it
        ({"observability_enabled": "false"}, False),
        ({"observability_enabled": None}, False),
    ],
)
def test_the_switch_is_read_from_the_configuration(config: Any, enabled: bool) -> None:
    assert observability_enabled_from_config(config) is enabled


def test_the_directory_is_given_only_when_capture_is_on(tmp_path: Path) -> None:
    off = {"model_call_capture_dir": str(tmp_path)}

    assert model_call_capture_dirs_from_config(off) == []
    assert model_call_capture_dirs_from_config({**off, "observability_enabled": True}) == [tmp_path]
    for bad in (None, "", "relative/dir"):
        with pytest.raises(ConfigMistake, match="observability_enabled is true"):
            model_call_capture_dirs_from_config(
                {"observability_enabled": True, "model_call_capture_dir": bad}
            )


def test_a_reader_that_was_replaced_is_used_by_the_merge(
    store: CaptureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module is a documented patch point."""
    monkeypatch.setattr(model_calls, "read_available_model_call_records", lambda *_: ([], 3))

    assert gaps_of(store.directory) == [
        {"code": "model_call_capture_records_unreadable", "detail": "count=3"}
    ]


def test_a_row_that_lands_while_others_are_read_is_not_missed_without_a_gap(
    store: CaptureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = store.claim(ROLLOUT)

    def read_too_early(*found: Any) -> Any:
        read = read_available_model_call_records(*found)
        store.submit(Row(ROLLOUT, "c", b'{"model_call_id":"c"}'), claim).result()
        return read

    monkeypatch.setattr(model_calls, "read_available_model_call_records", read_too_early)

    assert gaps_of(store.directory) == [
        {"code": "model_call_capture_no_records"},
        {"code": "model_call_capture_pending"},
    ]


@pytest.mark.parametrize("depth", [300, 980, 3000])
def test_a_call_that_nests_deeply_is_attached_with_all_others(
    store: CaptureStore, depth: int
) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    used = f'[{{"type":"tool_use","id":"t","name":"f","input":{deep}}}]'
    line = json.dumps({**EXCHANGE, "dialect": "messages", "response": {"content": "@"}})
    store.submit(Row(ROLLOUT, "c", line.replace('"@"', used).encode())).result()
    keep(store, EXCHANGE)
    bare = merge_model_call_capture_into_record({**RECORD}, [store.directory])
    whole = merge_model_call_capture_into_record({**RECORD}, [store.directory], True)
    attached, other = bare["ng_model_call_capture"]["calls"]
    (tool_call,) = attached["tool_calls"]
    payload = whole["ng_model_call_capture"]["calls"][0]["response"]["content"][0]["input"]

    assert "gaps" not in bare["ng_model_call_capture"]
    assert not {"request", "response", "request_raw", "response_raw"} & set(attached)
    assert other["response_id"] == "resp_123"
    assert tool_call["arguments"]["_raw"].replace(" ", "") == deep
    for _ in range(depth):
        payload = payload["a"]
    assert payload == 1
