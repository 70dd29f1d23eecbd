"""A summary knows of a row what the record of the same row knows."""

import json
from pathlib import Path

import pytest

from nemo_gym.capture.store import CaptureStore
from nemo_gym.observability.model_calls import read_model_call_records
from nemo_gym.observability.summaries import summarize

USAGE = {"prompt_tokens": 3, "completion_tokens": 2}


@pytest.mark.parametrize(
    "told",
    [
        pytest.param({"response": {"usage": USAGE}, "request": {"x": "\ud800"}}, id="half-a-pair"),
        pytest.param({"response": {"usage": USAGE}, "error_category": 7}, id="wrong-type"),
        pytest.param({"response": {"choices": [None, {"usage": USAGE}]}}, id="odd-choice"),
        pytest.param(
            {"response": {"choices": [{"usage": USAGE}], "id": "\ud800"}}, id="half-and-in-choice"
        ),
        pytest.param({"response": {"usage": USAGE, "n": float("nan")}}, id="NaN-beside"),
    ],
)
def test_odd_rows_are_counted_as_their_records_are(tmp_path: Path, told: dict[str, object]) -> None:
    row = json.dumps({"dialect": "chat", "completed_at": 5.0, **told})
    (tmp_path / "0-0.capture.jsonl").write_text(row + "\n")
    store = CaptureStore(tmp_path)
    summary = summarize(store, "0-0")
    (record,) = read_model_call_records(store, "0-0")

    assert (summary.calls, summary.damaged, summary.errors) == (1, 0, {})
    assert (
        (summary.tokens_in, summary.tokens_out) == (record.tokens_in, record.tokens_out) == (3, 2)
    )
    assert summary.completed_at == record.completed_at == 5.0


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1" + "0" * 400])
def test_a_number_that_is_no_time_is_none(tmp_path: Path, number: str) -> None:
    row = f'{{"dialect": "chat", "completed_at": {number}, "error_category": "cancelled"}}\n'
    (tmp_path / "0-0.capture.jsonl").write_text(row)
    summary = summarize(CaptureStore(tmp_path), "0-0")

    assert (summary.calls, summary.completed_at) == (1, None)
    assert summary.errors == {"cancelled": 1}
