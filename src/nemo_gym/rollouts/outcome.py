"""How a rollout ended: what the agent answered in, a reward or a failure out. No I/O.

An infrastructure failure is never a reward of 0: without a number under `reward` in the agent's
answer there is a `Failure`, with a class that says whose it is.
"""

from dataclasses import dataclass

from nemo_gym.ids import ATTEMPT_INDEX_KEY, ROLLOUT_ID_KEY, ROLLOUT_INDEX_KEY, TASK_INDEX_KEY
from nemo_gym.rollouts.aggregate import REWARD, RolloutNumbers
from nemo_gym.rollouts.lines import (
    Members,
    NotAnObject,
    count_of,
    members_of,
    number_of,
    split_members,
    text_of,
)
from nemo_gym.rollouts.plan import AGENT_REF_KEY

__all__ = [
    "CAPTURE_KEY",
    "FAILURE_CLASSES",
    "FAILURE_CLASS_KEY",
    "TIMING_KEY",
    "Failure",
    "Rewarded",
    "judge",
    "numbers_of",
]

FAILURE_CLASS_KEY = "_ng_failure_class"
CAPTURE_KEY = "ng_model_call_capture"
TIMING_KEY = "ng_timing"

FAILURE_CLASSES = (
    "agent_error",
    "verifier_error",
    "model_error",
    "timeout",
    "connection",
    "cancelled",
    "invalid_row",
)

_LONGEST_TEXT = 8192
"""Characters of a foreign text that go into a failure; the rest is in the logs."""
_NOT_METRICS = frozenset(
    {ATTEMPT_INDEX_KEY, ROLLOUT_ID_KEY, ROLLOUT_INDEX_KEY, TASK_INDEX_KEY, AGENT_REF_KEY}
)
_REPORTED = "rollout_failure"
_REFUSED = frozenset({400, 413, 422})
_COMPONENTS = "reward_components"
_USAGE_PATHS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("tokens_in", ("input_tokens",)),
    ("tokens_out", ("output_tokens",)),
    ("tokens_reasoning", ("output_tokens_details", "reasoning_tokens")),
    ("cached_tokens", ("input_tokens_details", "cached_tokens")),
    ("tokens_total", ("total_tokens",)),
)


@dataclass(frozen=True, slots=True)
class Rewarded:
    """The agent answered with a reward."""

    members: Members
    """The verify response."""
    reward: float

    @property
    def kind(self) -> str:
        """Return how the rollout ended, as telemetry names it."""
        return "rewarded"


@dataclass(frozen=True, slots=True)
class Failure:
    """The rollout ended without a reward."""

    failure_class: str
    """One of `FAILURE_CLASSES`."""
    message: str
    status: int | None = None
    """HTTP status of the agent's answer; None when it did not answer."""
    provider_status: int | None = None
    """HTTP status of the model's provider, where that is what went wrong."""
    provider_body: str | None = None
    """What the provider said."""

    @property
    def kind(self) -> str:
        """Return how the rollout ended, as telemetry names it."""
        return self.failure_class


def judge(status: int, body: bytes) -> Rewarded | Failure:
    """Return how a rollout ended, given the status and body that the agent's `/run` answered."""
    return _judge_success(body) if 200 <= status < 300 else _judge_error(status, body)


def _judge_success(body: bytes) -> Rewarded | Failure:
    try:
        members = split_members(body)
    except NotAnObject as error:
        return Failure("agent_error", f"the agent's answer cannot be read: {error}", 200)
    reward = number_of(members.get(REWARD))
    if reward is None:
        said = members[REWARD][:80].decode(errors="replace") if REWARD in members else None
        what = "has no reward" if said is None else f"has a reward that is no number: {said}"
        return Failure("verifier_error", f"the agent's answer {what}", 200)
    return Rewarded(members, reward)


def _judge_error(status: int, body: bytes) -> Failure:
    reported = members_of(members_of(body.strip()).get("error"))
    if text_of(reported.get("type")) == _REPORTED:
        return _reported_failure(status, reported)
    text = _shortened(body.decode(errors="replace"))
    if status in _REFUSED:
        return Failure("invalid_row", f"the agent refuses the row ({status}): {text}", status)
    return Failure("agent_error", f"the agent answered {status}: {text}", status)


def _reported_failure(status: int, reported: Members) -> Failure:
    failure_class = text_of(reported.get("failure_class"))
    body = reported.get("provider_body", b"null")
    said = text_of(body)
    if said is None and body != b"null":
        said = body.decode(errors="replace")
    return Failure(
        failure_class=failure_class if failure_class in FAILURE_CLASSES else "agent_error",
        message=_shortened(text_of(reported.get("message")) or ""),
        status=status,
        provider_status=count_of(reported.get("provider_status")),
        provider_body=None if said is None else _shortened(said),
    )


def _shortened(text: str) -> str:
    rest = len(text) - _LONGEST_TEXT
    return text if rest <= 0 else f"{text[:_LONGEST_TEXT]}… ({rest} more characters)"


def numbers_of(
    members: Members, agent: str, task: int, row_keys: frozenset[str] = frozenset()
) -> RolloutNumbers:
    """Return what the aggregate takes from an output row.

    Every numeric top-level field that the environment added is a metric (true is 1, false is 0);
    what the row brought along (`row_keys`), indices and attachments are not.
    """
    values: dict[str, float] = {}
    for key, raw in members.items():
        if key == REWARD or not (key in row_keys or key in _NOT_METRICS or key.startswith("ng_")):
            value = number_of(raw, booleans=key != REWARD)
            if value is not None:
                values[key] = value
    for key, raw in members_of(members.get(_COMPONENTS)).items():
        value = number_of(raw)
        if value is not None:
            values[f"{_COMPONENTS}/{key}"] = value
    timing = members_of(members.get(TIMING_KEY))
    return RolloutNumbers(
        agent, task, values, _tokens_of(members), number_of(timing.get("latency_ms"))
    )


def _tokens_of(members: Members) -> dict[str, int]:
    """Return the tokens of all captured calls where there is a capture, else the usage."""
    metrics = members_of(members_of(members.get(CAPTURE_KEY)).get("metrics"))
    usage = members_of(members_of(members.get("response")).get("usage"))
    found: dict[str, int] = {}
    for name, path in _USAGE_PATHS:
        count = count_of(metrics.get(name))
        if count is None and not metrics:
            count = _count_at(usage, path)
        if count is not None:
            found[name] = count
    return found


def _count_at(members: Members, path: tuple[str, ...]) -> int | None:
    for key in path[:-1]:
        members = members_of(members.get(key))
    return count_of(members.get(path[-1]))
