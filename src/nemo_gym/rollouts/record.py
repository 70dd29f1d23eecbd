"""One ended attempt in, one line of the output or of the failures out. No files, no clock."""

from collections.abc import Mapping
from dataclasses import dataclass

from nemo_gym.ids import (
    ATTEMPT_INDEX_KEY,
    ROLLOUT_ID_KEY,
    ROLLOUT_INDEX_KEY,
    TASK_INDEX_KEY,
)
from nemo_gym.rollouts.lines import Members, raw_value, value_of
from nemo_gym.rollouts.outcome import FAILURE_CLASS_KEY, TIMING_KEY, Failure, Rewarded
from nemo_gym.rollouts.plan import AGENT_REF_KEY
from nemo_gym.rollouts.resume import Attempt

__all__ = ["EndedAttempt", "Timing", "failure_members", "identity_of", "output_members"]


@dataclass(frozen=True, slots=True)
class Timing:
    """When an attempt ran."""

    started_at: float
    """Dispatch, in UTC Unix seconds."""
    latency_ms: float
    """From dispatch to the agent's answer, in ms."""


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """An attempt that is over, for those who attach evidence to its row."""

    attempt: Attempt
    outcome: Rewarded | Failure
    timing: Timing

    def identity(self) -> dict[str, object]:
        """Return the row's `_ng_*` keys, which name its capture."""
        return identity_of(self.attempt)

    def record(self) -> dict[str, object]:
        """Return the whole row as plain values; costs a parse."""
        return {key: value_of(raw) for key, raw in self.members({}).items()}

    def members(self, attachments: Mapping[str, object]) -> Members:
        """Return the row as it is kept, with `attachments` on it."""
        make = output_members if isinstance(self.outcome, Rewarded) else failure_members
        return make(self.attempt, self.outcome, self.timing, attachments)  # type: ignore[arg-type] # chosen by the outcome


def identity_of(attempt: Attempt) -> dict[str, object]:
    """Return the `_ng_*` keys of an attempt's row."""
    planned = attempt.planned
    identity: dict[str, object] = {
        TASK_INDEX_KEY: planned.task_index,
        ROLLOUT_INDEX_KEY: planned.rollout_index,
    }
    if attempt.attempt_index:
        identity[ATTEMPT_INDEX_KEY] = attempt.attempt_index
    if planned.explicit_id is not None:
        identity[ROLLOUT_ID_KEY] = planned.explicit_id
    return identity


def output_members(
    attempt: Attempt, rewarded: Rewarded, timing: Timing, attachments: Mapping[str, object]
) -> Members:
    """Return a row of the output: the verify response, whose rollout it is, and attachments."""
    members = dict(rewarded.members)
    # An agent that answers without the attempt it was told must not make it look like the first.
    members.pop(ATTEMPT_INDEX_KEY, None)
    members |= _common(attempt, timing, attachments)
    return members


def failure_members(
    attempt: Attempt, failure: Failure, timing: Timing, attachments: Mapping[str, object]
) -> Members:
    """Return a row of the failures: whose rollout it is, what went wrong, and attachments."""
    told = {
        FAILURE_CLASS_KEY: failure.failure_class,
        "_ng_failure_message": failure.message,
        "_ng_failure_status": failure.status,
        "_ng_provider_status": failure.provider_status,
        "_ng_provider_body": failure.provider_body,
    }
    members = {key: raw_value(value) for key, value in told.items() if value is not None}
    return _common(attempt, timing, attachments) | members


def _common(attempt: Attempt, timing: Timing, attachments: Mapping[str, object]) -> Members:
    members = {key: raw_value(value) for key, value in identity_of(attempt).items()}
    members[AGENT_REF_KEY] = attempt.planned.agent_ref
    members[TIMING_KEY] = raw_value(
        {"started_at": timing.started_at, "latency_ms": round(timing.latency_ms, 3)}
    )
    members |= {key: raw_value(value) for key, value in attachments.items()}
    return members
