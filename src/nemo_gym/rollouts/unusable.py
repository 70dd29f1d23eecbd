"""What the disk refuses, as the one message that a user gets."""

import errno
import os
from pathlib import Path

from nemo_gym.errors import OutputUnusable

__all__ = ["output_unusable"]

_OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE})


def output_unusable(what: str, error: OSError, path: Path, mend: str) -> OutputUnusable:
    """Return the mistake for an `OSError`: `what` cannot be done, why, where, and what to do.

    `path` is where it happened if the error does not say.
    """
    if error.errno in _OUT_OF_FILES:
        mend = "raise the limit on open files (ulimit -n) or lower --concurrency, then go on"
    system = os.strerror(error.errno) if error.errno else None
    told = error.strerror or str(error)
    reason = told if system is None or system == told else f"{system} ({told})"
    return OutputUnusable(
        f"{what}: {reason}", where=str(error.filename or path.absolute()), mend=mend
    )
