"""How big a finished rollout is, told to telemetry where it is on."""

from nemo_gym.rollouts.lines import Members, members_of, value_of
from nemo_gym.rollouts.plan import PARAMS_KEY
from nemo_gym.telemetry.instruments import swallowing
from nemo_gym.telemetry.observer import driver_metrics
from nemo_gym.wire.json import is_array, is_object

__all__ = ["RolloutSizes", "record_sizes", "sizes_of"]

RolloutSizes = tuple[int, int, int, int]
"""Input items, output items, turns of the model, tool calls."""

_TOOL_RESULT = "_call_output"
_TOOL_CALL = "_call"


def record_sizes(members: Members) -> None:
    """Record the sizes of one finished rollout; nothing is parsed while telemetry is off."""
    metrics = driver_metrics()
    if metrics is None:
        return
    instruments = (metrics.input_items, metrics.output_items, metrics.turns, metrics.tool_calls)
    for instrument, size in zip(instruments, sizes_of(members), strict=True):
        swallowing(instrument.record, size)


def sizes_of(members: Members) -> RolloutSizes:
    """Return the sizes of a rollout. A turn is what the model put out between two tool results."""
    given = members_of(members.get(PARAMS_KEY)).get("input", b"[]")
    input_items = _items(given)
    output = _items(members_of(members.get("response")).get("output", b"[]"))
    turns = tool_calls = 0
    after_result = True
    for item in output:
        kind = item.get("type") if is_object(item) else None
        text = kind if isinstance(kind, str) else ""
        is_result = text.endswith(_TOOL_RESULT)
        tool_calls += text.endswith(_TOOL_CALL)
        turns += after_result and not is_result
        after_result = is_result
    return len(input_items), len(output), turns, tool_calls


def _items(raw: bytes) -> list[object]:
    value = value_of(raw)
    return value if is_array(value) else [value]
