"""How big a finished rollout is, told to telemetry where it is on."""

from collections.abc import Sequence

import msgspec

from nemo_gym.rollouts.lines import Members, members_of, value_of
from nemo_gym.rollouts.plan import PARAMS_KEY
from nemo_gym.telemetry.observer import driver_metrics
from nemo_gym.wire.json import is_array, is_object

__all__ = ["RolloutSizes", "record_sizes", "sizes_of"]

RolloutSizes = tuple[int, int, int, int]
"""Input items, output items, turns of the model, tool calls."""

_TOOL_RESULT = "_call_output"
_TOOL_CALL = "_call"


class _Item(msgspec.Struct, gc=False):
    type: str = ""


class _Asked(msgspec.Struct, gc=False):
    input: list[msgspec.Raw] | str = []


class _Answered(msgspec.Struct, gc=False):
    output: list[_Item] = []


_read_asked = msgspec.json.Decoder(_Asked).decode
_read_answered = msgspec.json.Decoder(_Answered).decode


def record_sizes(members: Members) -> None:
    """Record the sizes of one finished rollout; nothing is parsed while telemetry is off."""
    metrics = driver_metrics()
    if metrics is not None:
        metrics.sizes.record(sizes_of(members))


def sizes_of(members: Members) -> RolloutSizes:
    """Return the sizes of a rollout. A turn is what the model put out between two tool results."""
    try:
        return _sizes_as_expected(members)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _sizes_of_anything(members)


def _sizes_as_expected(members: Members) -> RolloutSizes:
    # Lists whose items are objects: only the types are read, in a quarter of the time.
    given = _read_asked(members.get(PARAMS_KEY, b"{}")).input
    output = _read_answered(members.get("response", b"{}")).output
    input_items = 1 if isinstance(given, str) else len(given)
    return input_items, len(output), *_turns_and_calls([item.type for item in output])


def _sizes_of_anything(members: Members) -> RolloutSizes:
    given = _items(members_of(members.get(PARAMS_KEY)).get("input", b"[]"))
    output = _items(members_of(members.get("response")).get("output", b"[]"))
    kinds = [item.get("type") if is_object(item) else None for item in output]
    texts = [kind if isinstance(kind, str) else "" for kind in kinds]
    return len(given), len(output), *_turns_and_calls(texts)


def _turns_and_calls(kinds: Sequence[str]) -> tuple[int, int]:
    turns = tool_calls = 0
    after_result = True
    for kind in kinds:
        is_result = kind.endswith(_TOOL_RESULT)
        tool_calls += kind.endswith(_TOOL_CALL)
        turns += after_result and not is_result
        after_result = is_result
    return turns, tool_calls


def _items(raw: bytes) -> list[object]:
    value = value_of(raw)
    return value if is_array(value) else [value]
