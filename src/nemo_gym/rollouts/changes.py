"""Two manifests of one run in, what differs between them out. Pure.

What rollouts are made of stays as it was when a run began: the rows, the agent, the model by its
name and parameters, every other setting. Where the model is reached, and how patiently, may change
between sessions: a key runs out, a provider moves. Such a move is told, so that nobody who reads
the run takes all its rollouts for those of one place.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nemo_gym.config.resolved import KINDS
from nemo_gym.config.secrets import hide
from nemo_gym.rollouts.manifest import Manifest
from nemo_gym.wire.json import is_object

__all__ = ["changes_since", "moves_since"]

_MAY_DIFFER_ANYWHERE = frozenset({"host", "port"})
_MAY_DIFFER_ON_TOP = frozenset(
    {"concurrency", "head_server", "max_rollout_attempts", "num_repeats", "telemetry", "workers"}
)
_MODEL_SERVERS = "responses_api_models"
_WAY_TO_A_MODEL = re.compile(
    r"([a-z0-9_]+_)?(base_url|api_key)"
    r"|connect_timeout_s|idle_timeout_s|start_timeout_s|max_tries|retry_for_s|max_connections"
)
_WAY_ON_TOP = frozenset({"policy_base_url", "policy_api_key"})
_LOCAL_PORT = re.compile(r"\A(https?://(?:127\.0\.0\.1|localhost|\[::1\])):\d+(?=/|\Z)")
_ABSENT = "not set"

_Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Difference:
    path: _Path
    before: object
    after: object

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {_shown(self.before)} → {_shown(self.after)}"

    @property
    def of_the_way(self) -> bool:
        """Whether it is how a model is reached, by the name of the setting."""
        match self.path:
            case (key,):
                return key in _WAY_ON_TOP
            case (_, kind, _, key):
                return kind == _MODEL_SERVERS and _WAY_TO_A_MODEL.fullmatch(key) is not None
            case _:
                return False


def changes_since(old: Manifest, new: Manifest, prefix_sha256: str | None) -> list[str]:
    """Return what changed since a run began that makes its old rollouts unlike new ones.

    `prefix_sha256` is the fingerprint of the first `old.inputs.tasks` rows as they are now. A
    larger limit and more repeats are no change.
    """
    _, others = _differences(old, new)
    return [*_selection_changes(old, new, prefix_sha256), *map(str, others)]


def moves_since(old: Manifest, new: Manifest) -> list[str]:
    """Return what changed of how models are reached; secrets, which nobody sees, are left out."""
    moves, _ = _differences(old, new)
    return [*map(str, moves)]


def _selection_changes(old: Manifest, new: Manifest, prefix_sha256: str | None) -> list[str]:
    changes: list[str] = []
    was, now = old.selection, new.selection
    if was.agent != now.agent:
        changes.append(f"--agent: {_shown(was.agent)} → {_shown(now.agent)}")
    if now.num_repeats < was.num_repeats:
        changes.append(f"--num-repeats: {was.num_repeats} → {now.num_repeats}, which is fewer")
    rows = f"{old.inputs.tasks} → {new.inputs.tasks}"
    if new.inputs.tasks < old.inputs.tasks:
        changes.append(f"rows taken from the input: {rows}, which is fewer")
    elif prefix_sha256 != old.inputs.sha256:
        changes.append(f"the input: its first {old.inputs.tasks} rows are not those of the run")
    elif new.inputs.tasks > old.inputs.tasks and not _is_larger(was.limit, now.limit):
        changes.append(f"rows in the input: {rows}")
    return changes


def _is_larger(was: int | None, now: int | None) -> bool:
    return was is not None and (now is None or now > was)


def _differences(old: Manifest, new: Manifest) -> tuple[list[_Difference], list[_Difference]]:
    """Return how models are reached otherwise, and everything else that may not differ."""
    # What counts as a secret may have been less when the run began.
    before, after = _flattened(hide(old.config)), _flattened(hide(new.config))
    moves: list[_Difference] = []
    others: list[_Difference] = []
    for key in sorted(before.keys() | after.keys()):
        one, other = before.get(key, _ABSENT), after.get(key, _ABSENT)
        if _without_local_port(one) != _without_local_port(other) and not _may_differ(key):
            difference = _Difference(key, one, other)
            (moves if difference.of_the_way else others).append(difference)
    moved = [(move.before, move.after) for move in moves]
    # A model server may have its URL by reference: then the same change stands there as well.
    others = [
        each for each in others if _in_a_server(each) or (each.before, each.after) not in moved
    ]
    return moves, others


def _in_a_server(difference: _Difference) -> bool:
    return len(difference.path) > 1 and difference.path[1] in KINDS


def _without_local_port(value: object) -> object:
    """Return a URL on this machine without its port: the kernel may choose another each time."""
    return _LOCAL_PORT.sub(r"\1", value) if isinstance(value, str) else value


def _may_differ(key: _Path) -> bool:
    return key[-1] in _MAY_DIFFER_ANYWHERE or key[0] in _MAY_DIFFER_ON_TOP


def _flattened(tree: Mapping[str, object], at: _Path = ()) -> dict[_Path, object]:
    flat: dict[_Path, object] = {}
    for key, value in tree.items():
        if is_object(value):  # an empty section says nothing
            flat |= _flattened(value, (*at, key))
        else:
            flat[(*at, key)] = value
    return flat


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
