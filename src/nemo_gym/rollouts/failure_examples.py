"""One failure of each class as an example: the failures file of a run in, texts out."""

import itertools
from collections.abc import Collection
from pathlib import Path

from nemo_gym.ids import ROLLOUT_INDEX_KEY, TASK_INDEX_KEY
from nemo_gym.rollouts.outcome import FAILURE_CLASS_KEY
from nemo_gym.wire.json import loads_object

__all__ = ["failure_examples"]

_MESSAGE_KEY = "_ng_failure_message"
_MOST_ROWS = 2000
"""A run with more failures than this has its examples among the first of them."""


def failure_examples(path: Path, classes: Collection[str]) -> dict[str, str]:
    """Return `rollout: message` by class, of the first row of each.

    A class without a row, and an unreadable file, have no example.
    """
    found: dict[str, str] = {}
    try:
        with path.open("rb") as file:
            for line in itertools.islice(file, _MOST_ROWS):
                _take(line, classes, found)
                if len(found) == len(classes):
                    break
    except OSError:
        pass
    return found


def _take(line: bytes, classes: Collection[str], found: dict[str, str]) -> None:
    row = loads_object(line) or {}
    failure_class, message = row.get(FAILURE_CLASS_KEY), row.get(_MESSAGE_KEY)
    if not isinstance(failure_class, str) or not isinstance(message, str):
        return
    if failure_class in classes and failure_class not in found:
        where = f"{row.get(TASK_INDEX_KEY)}-{row.get(ROLLOUT_INDEX_KEY)}"
        found[failure_class] = f"{where}: {' '.join(message.split())}"
