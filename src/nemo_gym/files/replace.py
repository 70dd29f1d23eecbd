"""A whole file at once: either the old content or the new, never half of one."""

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from nemo_gym.files.disk import REAL_DISK, Disk

__all__ = ["replace_file", "replacing"]


@contextmanager
def replacing(path: Path, *, disk: Disk = REAL_DISK) -> Generator[int]:
    """Give the descriptor of an empty file; on leaving it is `path`, durable.

    The parent directory must be there. After an error the old content stands as it was.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.new")
    try:
        fd = disk.open_read_write(scratch)
        try:
            disk.truncate(fd, 0)
            yield fd
            disk.sync(fd)
        finally:
            disk.close(fd)
        disk.rename(scratch, path)
    except BaseException:
        disk.unlink(scratch)
        raise
    disk.sync_directory(path.parent)


def replace_file(path: Path | str, data: bytes, *, disk: Disk = REAL_DISK) -> None:
    """Put `data` in the place of a file's content, durable when this returns.

    The parent directory must be there. Raises `OSError` with the old content untouched.
    """
    with replacing(Path(path), disk=disk) as fd:
        offset = 0
        while offset < len(data):
            offset += disk.write_at(fd, data[offset:], offset)
