"""Which file system a path lies on, and whether its page cache is all there is.

A path in, a type name out, read from the kernel's table of mounts. On a local file system what
one process wrote every other sees at once; on a network one only a sync makes it so.
"""

import os
import re
from pathlib import Path

__all__ = ["LOCAL_SYSTEMS", "file_system_of", "is_local"]

LOCAL_SYSTEMS = frozenset({"ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay"})

_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")


def file_system_of(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """Return the type of the file system that `path`, or its nearest parent, lies on.

    None where the system keeps no table of mounts.
    """
    try:
        table = mounts.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    real = os.path.realpath(path)
    found: tuple[int, str] | None = None
    for line in table.splitlines():
        mount = _parse(line)
        # The later of two mounts on one place hides the earlier.
        if mount and _lies_under(real, mount[0]) and (not found or len(mount[0]) >= found[0]):
            found = len(mount[0]), mount[1]
    return found[1] if found else None


def is_local(path: Path) -> bool:
    """Say whether the file system of `path` is known to be local; an unknown one is not."""
    return file_system_of(path) in LOCAL_SYSTEMS


def _parse(line: str) -> tuple[str, str] | None:
    """Return mount point and type of one line of mountinfo."""
    before, dash, after = line.partition(" - ")
    fields = before.split(" ")
    if not dash or len(fields) < 5:
        return None
    return _OCTAL.sub(lambda m: chr(int(m[1], 8)), fields[4]), after.split(" ")[0]


def _lies_under(path: str, mount_point: str) -> bool:
    return mount_point in {"/", path} or path.startswith(mount_point + "/")
