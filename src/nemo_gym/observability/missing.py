"""Why a rollout lacks rows, in words."""

from nemo_gym.capture.store import CaptureStore

__all__ = ["why_incomplete"]

_SAYS_SO = "a row "


def why_incomplete(store: CaptureStore, rollout_id: str) -> list[str]:
    """Return what is known of the rows that a rollout lacks, which is known to lack some."""
    reasons = store.why_incomplete(rollout_id)
    told = [r if r.startswith(_SAYS_SO) else f"a row is missing: {r}" for r in reasons]
    return told or ["a row is missing"]
