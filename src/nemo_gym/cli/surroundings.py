"""What a command finds around it: standard streams, the working directory, names that are no text.

None of it can be relied on: a daemon closes its streams, a pipe's reader goes away, a directory is
removed while a shell stands in it.
"""

import errno
import os
import resource
import select
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from nemo_gym.errors import GymError, UserMistake

__all__ = [
    "allow_open_files",
    "give_streams",
    "reader_is_gone",
    "refuse_odd_arguments",
    "reports_unwritten",
    "surrounding_mistake",
]

_OPEN_FILES = 65_536
_PRINTERS = (f"{os.sep}click{os.sep}", f"{os.sep}rich{os.sep}")


def give_streams() -> None:
    """Put the null device where standard input, output or error is closed.

    Otherwise the next file or socket takes its number, and what is printed ends up there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is the one that is missing.
            os.open(os.devnull, os.O_RDWR)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - for good
            setattr(sys, name, stream)
    for stream in (sys.stdout, sys.stderr):
        # A name in a report that the terminal's encoding lacks is no reason to lose the report.
        if hasattr(stream, "reconfigure") and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def allow_open_files() -> None:
    """Take as many open files as the system permits: each rollout under way needs a few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # the system may permit less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def refuse_odd_arguments(arguments: list[str]) -> None:
    """Raise `UserMistake` for an argument that is not text: it could be written to no record."""
    for argument in arguments:
        if _is_odd(argument):
            raise UserMistake(
                f"an argument is not UTF-8 text: {_shown(argument)}",
                where="command line",
                mend="use names of files and components that are UTF-8",
            )


def surrounding_mistake(error: Exception) -> UserMistake | None:
    """Return what `error` comes of that is no bug: the working directory, a name; else None."""
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        name = str(error.filename)
        return UserMistake(
            f"a name is too long for a file: {name[:60]}…",
            where="command line or configuration",
            mend="use a shorter one",
        )
    try:
        here = str(Path.cwd())
    except OSError:
        return UserMistake(
            "the working directory does not exist any more",
            where=os.environ.get("PWD"),
            mend="change into a directory that exists, then run the same command again",
        )
    if not _is_odd(here):
        return None
    return UserMistake(
        "the path of the working directory is not UTF-8 text",
        where=_shown(here),
        mend="rename that directory, or work in another one",
    )


def reader_is_gone() -> bool:
    """Say whether standard output is a pipe that nobody reads any more."""
    watched = select.poll()
    watched.register(1, 0)
    return any(event & select.POLLERR for _, event in watched.poll(0))


def reports_unwritten(error: OSError) -> GymError | None:
    """Return what to say where `error` came of printing; None where it did not.

    Nothing more is printed to standard output then.
    """
    if not _was_printing(error.__traceback__):
        return None
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return GymError(f"standard output cannot be written: {error.strerror or error}")


def _was_printing(traceback: TracebackType | None) -> bool:
    """Say whether the innermost frame is one of a library that prints."""
    if traceback is None:
        return False
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return any(name in traceback.tb_frame.f_code.co_filename for name in _PRINTERS)


def _is_odd(text: str) -> bool:
    """Say whether bytes that are no UTF-8 hide in a text that the system gave."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def _shown(text: str) -> str:
    return os.fsencode(text).decode("utf-8", "backslashreplace")
