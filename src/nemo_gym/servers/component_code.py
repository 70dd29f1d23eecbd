"""Code of a component at a server's start: what it raises is one message with the lines it is in.

A component is the user's. Its mistakes are told as theirs, by file and line, without this package's
own frames; the whole traceback goes to the log.
"""

import logging
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from nemo_gym.errors import ConfigMistake, GymError

__all__ = ["component_code"]

logger = logging.getLogger(__name__)

_MOST_LINES = 8


@contextmanager
def component_code(name: str, doing: str, folder: Path) -> Generator[None]:
    """Run code of the component in `folder` inside; raises `ConfigMistake` for what it raises.

    `doing` completes "NAME failed when …". Errors of this package pass, and so does a missing
    package or a syntax error, for which there is better advice.
    """
    try:
        yield
    except (GymError, ImportError, SyntaxError):
        raise
    except (Exception, SystemExit) as error:
        logger.exception("%s failed when %s", name, doing)
        told = f": {error}" if str(error) else ""
        raise ConfigMistake(
            f"{name} failed when {doing}: {type(error).__name__}{told}",
            where=_lines_of(error, folder.resolve()),
            mend="correct it there; the log of the server has the whole traceback",
        ) from error


def _lines_of(error: BaseException, folder: Path) -> str:
    """Return the component's own lines on the way to the error, and what they called."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [n for n, frame in enumerate(frames) if Path(frame.filename).is_relative_to(folder)]
    shown = frames[own[0] :] if own else frames[-1:]
    lines = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in shown]
    return "\n         ".join(lines[-_MOST_LINES:])
