"""Opening files that must be files: what waits, like a pipe, or forgets, like a device, is refused.

A path in, a descriptor of a regular file out, or an `OSError` that says what is there instead. It
never waits for somebody at the other end.
"""

import errno
import os
from pathlib import Path
from stat import S_ISDIR, S_ISREG

__all__ = ["not_regular", "open_regular"]

# Less the umask, as everybody makes files: users who share a directory through their group (umask
# 002) append to each other's files, and whoever wants nobody to read them says so by 077.
_MODE = 0o666
# Opened without them, a pipe waits for its other end and a terminal becomes our own.
_CAREFULLY = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def open_regular(path: Path, flags: int) -> int:
    """Open a regular file, or make one where `flags` say so. Raises `OSError`."""
    try:
        fd = os.open(path, flags | _CAREFULLY, _MODE)
    except BlockingIOError:
        # Only regular files are leased out (to NFS clients, for one), and they come back.
        fd = os.open(path, flags | _CAREFULLY & ~os.O_NONBLOCK, _MODE)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise _no_file(path) from None  # a socket, or a device that nothing drives
    problem = not_regular(os.fstat(fd).st_mode, path)
    if problem is not None:
        os.close(fd)
        raise problem
    return fd


def not_regular(mode: int, path: Path) -> OSError | None:
    """Return what to raise instead of opening `path`, which has this `st_mode`; None: it may be."""
    if S_ISREG(mode):
        return None
    if S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return _no_file(path)


def _no_file(path: Path) -> OSError:
    # Not EINVAL, which from a lock means that there are no locks here.
    return OSError(errno.ENXIO, "Not a regular file", str(path))
