"""Every documented name of `nemo_gym.observability.model_calls`: there, with that signature."""

import inspect
import logging
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Optional

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from nemo_gym.capture.store import CaptureStore
from nemo_gym.observability import model_calls
from nemo_gym.records.refs import ModelServerRef

Calls = list[model_calls.ModelCallRecord]
Stats = dict[str, Optional[int]]  # noqa: UP045 - as documented
REQUIRED = inspect.Parameter.empty

FUNCTIONS: dict[str, tuple[dict[str, tuple[Any, Any]], Any]] = {
    "_as_arguments": ({"arguments": (Any, REQUIRED)}, dict[str, Any]),
    "_cache_signal": ({"usage": (Any, REQUIRED)}, tuple[bool | None, int | None]),
    "_store_for_rollout": (
        {"rollout_id": (str, REQUIRED), "capture_dirs": (list[Path], REQUIRED)},
        CaptureStore | None,
    ),
    "_token_count": ({"value": (Any, REQUIRED)}, int | None),
    "_tool_calls_and_reasoning": (
        {"response": (dict[str, Any], REQUIRED)},
        tuple[list[dict[str, Any]], str | None],
    ),
    "_usage_detail_token": (
        {
            "usage": (Mapping[str, Any], REQUIRED),
            "detail_groups": (tuple[str, ...], REQUIRED),
            "field_names": (tuple[str, ...], REQUIRED),
        },
        int | None,
    ),
    "aggregate_model_call_metrics": (
        {"store": (CaptureStore, REQUIRED), "rollout_id": (str, REQUIRED)},
        dict[str, Any],
    ),
    "aggregate_model_call_records": ({"calls": (Calls, REQUIRED)}, dict[str, Any]),
    "await_model_call_capture_quiescence": (
        {
            "rollout_id": (str, REQUIRED),
            "capture_dirs": (list[Path], REQUIRED),
            "timeout_s": (float, 10.0),
            "poll_s": (float, 0.05),
        },
        bool,
    ),
    "build_model_call_record": (
        {"exchange": (dict[str, Any], REQUIRED), "call_index": (int, REQUIRED)},
        model_calls.ModelCallRecord,
    ),
    "clear_model_call_captures_for_rollouts": (
        {"records": (list[Any], REQUIRED), "capture_dirs": (list[Path], REQUIRED)},
        type(None),
    ),
    "extract_token_stats": ({"usage": (Any, REQUIRED)}, Stats),
    "merge_model_call_capture_into_record": (
        {
            "record": (dict[str, Any], REQUIRED),
            "capture_dirs": (list[Path], REQUIRED),
            "include_payloads": (bool, False),
        },
        dict[str, Any],
    ),
    "model_call_capture_dirs_from_config": ({"global_config_dict": (Any, REQUIRED)}, list[Path]),
    "observability_enabled_from_config": ({"global_config_dict": (Any, REQUIRED)}, bool),
    "read_available_model_call_records": (
        {"store": (CaptureStore, REQUIRED), "rollout_id": (str, REQUIRED)},
        tuple[Calls, int],
    ),
    "read_model_call_records": (
        {"store": (CaptureStore, REQUIRED), "rollout_id": (str, REQUIRED)},
        Calls,
    ),
}

OPTIONAL_FIELDS: dict[str, Any] = {
    "cache_creation_tokens": int,
    "cache_hit": bool,
    "cached_tokens": int,
    "completed_at": float,
    "dialect": str,
    "error_category": str,
    "finish_reason": str,
    "latency_total_ms": float,
    "latency_ttft_ms": float,
    "local_response_reason": str,
    "model": str,
    "model_call_id": str,
    "model_ref": ModelServerRef,
    "reasoning_content": str,
    "request": dict[str, Any],
    "request_raw": str,
    "response": dict[str, Any],
    "response_id": str,
    "response_raw": str,
    "response_source": Literal["upstream", "local"],
    "response_status": str,
    "started_at": float,
    "status_code": int,
    "tokens_in": int,
    "tokens_out": int,
    "tokens_reasoning": int,
    "tokens_total": int,
    "upstream_attempted": bool,
    "upstream_status_code": int,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_its_documented_signature(name: str) -> None:
    function = getattr(model_calls, name)
    parameters, result = FUNCTIONS[name]
    hints = typing.get_type_hints(function)
    found = inspect.signature(function).parameters

    assert list(found) == list(parameters)
    for parameter, (kind, default) in parameters.items():
        assert hints[parameter] == kind, parameter
        assert found[parameter].default == default, parameter
    assert hints["return"] == result
    assert inspect.iscoroutinefunction(function) == name.startswith("await_")


def test_the_record_has_the_documented_fields_and_defaults() -> None:
    fields: dict[str, FieldInfo] = model_calls.ModelCallRecord.model_fields
    hints = typing.get_type_hints(model_calls.ModelCallRecord)

    assert issubclass(model_calls.ModelCallRecord, BaseModel)
    assert set(fields) == {
        *OPTIONAL_FIELDS,
        "call_index",
        "tool_calls",
        "client_session_id",
        "client_assistant_message_id",
    }
    for name, kind in OPTIONAL_FIELDS.items():
        assert hints[name] == kind | None, name
        assert fields[name].default is None, name
    for name in ("call_index", "client_session_id", "client_assistant_message_id"):
        assert fields[name].is_required(), name
    assert hints["call_index"] is int
    assert hints["tool_calls"] == list[dict[str, Any]]
    assert fields["tool_calls"].default_factory is list


def test_the_constants_and_the_logger_are_as_documented() -> None:
    assert model_calls.CAPTURE_DRAIN_TIMEOUT_S == 10.0
    assert model_calls._CAPTURE_DRAIN_POLL_S == 0.05
    assert model_calls.logger is logging.getLogger("nemo_gym.observability.model_calls")
