"""Read saved model exchanges, resolve ownership, and attach evidence to rollouts.

Capture directories and rollout records in, records with `ng_model_call_capture` out. What cannot
be known becomes a gap of the attachment; the harness's output and reward are never touched.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Optional

from pydantic_core import to_jsonable_python

from nemo_gym.capture.store import CaptureStore
from nemo_gym.errors import CaptureDamaged, ConfigMistake, GymError
from nemo_gym.files.jsonl import Damaged
from nemo_gym.ids import ROLLOUT_ID_KEY, rollout_id_of_record
from nemo_gym.records.model_call import PAYLOAD_FIELDS, ModelCallRecord, build
from nemo_gym.records.totals import aggregate
from nemo_gym.wire.content import as_arguments, tool_calls_and_reasoning
from nemo_gym.wire.deep_json import pieces_by_loop
from nemo_gym.wire.usage import cache_signal, token_count, token_stats, usage_detail_token

__all__ = [
    "CAPTURE_DRAIN_TIMEOUT_S",
    "ModelCallRecord",
    "aggregate_model_call_metrics",
    "aggregate_model_call_records",
    "await_model_call_capture_quiescence",
    "build_model_call_record",
    "clear_model_call_captures_for_rollouts",
    "extract_token_stats",
    "logger",
    "merge_model_call_capture_into_record",
    "model_call_capture_dirs_from_config",
    "observability_enabled_from_config",
    "read_available_model_call_records",
    "read_model_call_records",
]

logger = logging.getLogger(__name__)

CAPTURE_DRAIN_TIMEOUT_S = 10.0
"""How long the collector waits for calls that are still being written, in seconds."""

_CAPTURE_DRAIN_POLL_S = 0.05

_ATTACHMENT = "ng_model_call_capture"
_UNREADABLE = "model_call_capture_unreadable"
_ENABLED, _DIRECTORY = "observability_enabled", "model_call_capture_dir"


def observability_enabled_from_config(global_config_dict: Any) -> bool:
    """Return the run-wide `observability_enabled` flag, false where it is not set."""
    enabled = _setting(global_config_dict, _ENABLED)
    return enabled is True or str(enabled).lower() == "true"


def model_call_capture_dirs_from_config(global_config_dict: Any) -> list[Path]:
    """Return the one capture directory of the run when capture is enabled, else nothing.

    Raises `ConfigMistake` when it is enabled without an absolute directory.
    """
    if not observability_enabled_from_config(global_config_dict):
        return []
    directory = _setting(global_config_dict, _DIRECTORY)
    if not directory or not Path(str(directory)).is_absolute():
        raise ConfigMistake(
            f"{_ENABLED} is true and {_DIRECTORY} is {directory!r}",
            where=_DIRECTORY,
            mend="give an absolute directory that model servers and collector share",
        )
    return [Path(str(directory))]


def build_model_call_record(exchange: dict[str, Any], call_index: int) -> ModelCallRecord:
    """Map one captured exchange and its transport metadata into an observability record."""
    return build(exchange, call_index)


def read_model_call_records(store: CaptureStore, rollout_id: str) -> list[ModelCallRecord]:
    """Read captured exchanges in durable append order.

    Raises `CaptureDamaged` when a line cannot be read.
    """
    calls, damaged = _read(store, rollout_id)
    if damaged:
        raise CaptureDamaged(
            f"{len(damaged)} of the captured calls of rollout {rollout_id} cannot be read: "
            f"{damaged[0]}"
        )
    return calls


def read_available_model_call_records(
    store: CaptureStore, rollout_id: str
) -> tuple[list[ModelCallRecord], int]:
    """Read valid call records and count damaged records."""
    calls, damaged = _read(store, rollout_id)
    return calls, len(damaged)


def aggregate_model_call_records(calls: list[ModelCallRecord]) -> dict[str, Any]:
    """Aggregate token and latency values from model-call records.

    Sums are over the values that were reported, None when no call reported one.
    """
    return {**aggregate(calls)}


def aggregate_model_call_metrics(store: CaptureStore, rollout_id: str) -> dict[str, Any]:
    """Aggregate model-call metrics for one rollout id.

    Raises `CaptureDamaged` when a line cannot be read, rather than leave it out of a total.
    """
    return aggregate_model_call_records(read_model_call_records(store, rollout_id))


def clear_model_call_captures_for_rollouts(records: list[Any], capture_dirs: list[Path]) -> None:
    """Remove stale captures of the rollouts that these records are about to run.

    Records that carry no rollout id are left out. Raises `OSError` where it cannot be done.
    """
    found = (rollout_id_of_record(_as_mapping(record)) for record in records)
    rollout_ids = [rollout_id for rollout_id in found if rollout_id is not None]
    for directory in capture_dirs:
        if rollout_ids and directory.is_dir():
            _store(directory).clear(rollout_ids)


async def await_model_call_capture_quiescence(
    rollout_id: str,
    capture_dirs: list[Path],
    timeout_s: float = CAPTURE_DRAIN_TIMEOUT_S,
    poll_s: float = _CAPTURE_DRAIN_POLL_S,
) -> bool:
    """Wait until no claimed capture write for this rollout is outstanding.

    A call that was cancelled may still be on its way to the disk. Returns False on timeout, which
    the merge turns into a `model_call_capture_pending` gap rather than a silent omission.
    """
    deadline = time.monotonic() + timeout_s
    while await asyncio.to_thread(_is_pending, rollout_id, capture_dirs):
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        await asyncio.sleep(min(poll_s, left))
    return True


def merge_model_call_capture_into_record(
    record: dict[str, Any], capture_dirs: list[Path], include_payloads: bool = False
) -> dict[str, Any]:
    """Attach captured model-call observability data to a rollout record in place.

    Adds `ng_model_call_capture = {rollout_id, metrics, calls}`, and `gaps` where something is not
    known. Raw payloads are left out unless `include_payloads` is true. A record without a rollout
    id, or a run without capture, is left as it is. Blocks on files: keep it off the event loop.
    """
    if not capture_dirs:
        return record
    rollout_id: str | None = str(record.get(ROLLOUT_ID_KEY))
    try:
        rollout_id = rollout_id_of_record(record)
        if rollout_id is None:
            return record
        calls, gaps = _evidence(rollout_id, capture_dirs)
    except (OSError, GymError) as error:
        logger.warning("capture: rollout %s cannot be read: %r", rollout_id, error)
        calls, gaps = [], [{"code": _UNREADABLE, "detail": type(error).__name__}]
    left_out = set() if include_payloads else set(PAYLOAD_FIELDS)
    attachment: dict[str, Any] = {
        "rollout_id": str(rollout_id),
        "metrics": aggregate_model_call_records(calls),
        "calls": [_plain(call, left_out) for call in calls],
    }
    if gaps:
        attachment["gaps"] = gaps
    record[_ATTACHMENT] = attachment
    return record


def extract_token_stats(usage: Any) -> dict[str, Optional[int]]:  # noqa: UP045 - as documented
    """Normalize token totals across Responses, Chat Completions and Anthropic Messages usage.

    `tokens_in` is the size of the prompt: where cache reads and writes are counted apart from
    `input_tokens` they are added. Judges by the fields, as it is not told the dialect.
    """
    return token_stats(usage)._asdict()


def _as_arguments(arguments: Any) -> dict[str, Any]:
    return as_arguments(arguments)


def _cache_signal(usage: Any) -> tuple[Optional[bool], Optional[int]]:  # noqa: UP045 - as documented
    """Return whether a cache was hit and how many tokens came from it, None where not reported."""
    return cache_signal(usage)


def _token_count(value: Any) -> Optional[int]:  # noqa: UP045 - as documented
    return token_count(value)


def _tool_calls_and_reasoning(
    response: dict[str, Any],
) -> tuple[list[dict[str, Any]], Optional[str]]:  # noqa: UP045 - as documented
    """Return tool calls (name, arguments, call_id) and reasoning text, across all three shapes."""
    return tool_calls_and_reasoning(response)


def _usage_detail_token(
    usage: Mapping[str, Any], detail_groups: tuple[str, ...], field_names: tuple[str, ...]
) -> Optional[int]:  # noqa: UP045 - as documented
    """Return the first valid token count across equivalent provider detail shapes."""
    return usage_detail_token(usage, detail_groups, field_names)


def _store_for_rollout(rollout_id: str, capture_dirs: list[Path]) -> Optional[CaptureStore]:  # noqa: UP045 - as documented
    """Return the store that has rows of the rollout, else the first; None without directories."""
    stores = [_store(directory) for directory in capture_dirs]
    return next((s for s in stores if s.has_rows(rollout_id)), stores[0] if stores else None)


@lru_cache(maxsize=16)
def _store(directory: Path) -> CaptureStore:
    # Kept, so that commit logs are looked at once and not for every rollout.
    return CaptureStore(directory)


def _read(store: CaptureStore, rollout_id: str) -> tuple[list[ModelCallRecord], list[Damaged]]:
    items = store.read(rollout_id)
    exchanges = [item for item in items if not isinstance(item, Damaged)]
    calls = [build_model_call_record(item, index) for index, item in enumerate(exchanges)]
    return calls, [item for item in items if isinstance(item, Damaged)]


def _is_pending(rollout_id: str, capture_dirs: list[Path]) -> bool:
    return any(_store(directory).is_pending(rollout_id) for directory in capture_dirs)


def _is_incomplete(rollout_id: str, capture_dirs: list[Path]) -> bool:
    return any(_store(directory).is_incomplete(rollout_id) for directory in capture_dirs)


def _evidence(
    rollout_id: str, capture_dirs: list[Path]
) -> tuple[list[ModelCallRecord], list[dict[str, str]]]:
    """Return the calls of a rollout, and a gap for everything that keeps them from being all."""
    store = _store_for_rollout(rollout_id, capture_dirs)
    if store is None:
        return [], []
    # Before reading: a row that lands in between must not be missed without a gap.
    pending = _is_pending(rollout_id, capture_dirs)
    calls, damaged = read_available_model_call_records(store, rollout_id)
    codes = {
        "model_call_capture_no_records": not calls and not damaged,
        "model_call_capture_records_unreadable": damaged > 0,
        "model_call_capture_incomplete": _is_incomplete(rollout_id, capture_dirs),
        "model_call_capture_pending": pending,
    }
    gaps = [{"code": code} for code, applies in codes.items() if applies]
    for gap in gaps:
        if gap["code"] == "model_call_capture_records_unreadable":
            gap["detail"] = f"count={damaged}"
    return calls, gaps


def _plain(call: ModelCallRecord, left_out: set[str]) -> dict[str, Any]:
    """Return a record as plain values; tool arguments that nest too deeply as their text."""
    try:
        return call.model_dump(mode="json", exclude=left_out)
    except ValueError:  # pydantic gives up on 255 levels
        tool_calls = [_within_reach(each) for each in call.tool_calls]
    rest = call.model_copy(update={"tool_calls": tool_calls})
    plain = rest.model_dump(mode="json", exclude=set(PAYLOAD_FIELDS))
    kept = [key for key in ModelCallRecord.model_fields if key in PAYLOAD_FIELDS - left_out]
    return plain | {key: getattr(call, key) for key in kept}  # those are JSON already


def _within_reach(tool_call: dict[str, Any]) -> dict[str, Any]:
    try:
        to_jsonable_python(tool_call)
    except ValueError:
        text = "".join(pieces_by_loop(tool_call["arguments"], ascii_only=False))
        return {**tool_call, "arguments": {"_raw": text}}
    return tool_call


def _setting(config: Any, key: str) -> Any:
    """Return a top-level setting of a mapping or of an object with attributes."""
    if config is None:
        return None
    return config.get(key) if isinstance(config, Mapping) else getattr(config, key, None)


def _as_mapping(record: Any) -> Mapping[str, Any]:
    if isinstance(record, Mapping):
        return record
    dump = getattr(record, "model_dump", None)
    found: Mapping[str, Any] = dump(by_alias=True) if callable(dump) else vars(record)
    return found
