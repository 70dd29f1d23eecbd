"""Calls of the system's C library that Python has no name for, or makes in another way.

Descriptors in; nothing, or what the system says, out. The library is loaded at the first call, so
that a process that only reads files never pays for it.
"""

import errno
import os
import struct
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

__all__ = [
    "collapse_pages",
    "control_now",
    "find_bytes",
    "size_and_links_now",
    "sync_file_system",
    "tail_now",
    "write_back",
]

# SYNC_FILE_RANGE_WAIT_BEFORE | _WRITE | _WAIT_AFTER, sync_file_range(2)
_WRITE_AND_WAIT = 1 | 2 | 4
_NOT_HERE = {errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ESPIPE}
# MADV_COLLAPSE, madvise(2), since Linux 6.1
_COLLAPSE = 25
# AT_EMPTY_PATH and STATX_NLINK | STATX_SIZE, statx(2)
_EMPTY_PATH, _LINKS_AND_SIZE = 0x1000, 0x4 | 0x200
# struct statx, the same on every machine: stx_nlink and stx_size
_STATX = struct.Struct("=16xI20xQ208x")
_IS_64_BIT_LINUX = sys.platform == "linux" and sys.maxsize > 1 << 32


def sync_file_system(fd: int) -> None:
    """Return once everything on the file system of `fd` would survive a power cut."""
    call, last_error = _function("syncfs")
    if call is None:  # pragma: no cover - macOS
        os.sync()
    elif call(fd) != 0:
        raise OSError(last_error(), "the file system cannot be synced")


def write_back(fd: int) -> None:
    """Return once the data of an open file is with its disk, which may lose it in a power cut.

    Where the system cannot do that, nothing is done.
    """
    call, last_error = _function("sync_file_range")
    if call is not None and call(fd, 0, 0, _WRITE_AND_WAIT) != 0:
        number = last_error()
        if number not in _NOT_HERE:
            raise OSError(number, os.strerror(number))


def collapse_pages(start: int, length: int) -> bool:
    """Ask for large pages under this memory of the process, whole large pages; say whether it did.

    What lies there stays as it is, whatever the system does.
    """
    call, _ = _function("madvise")
    return call is not None and call(start, length, _COLLAPSE) == 0


def control_now(fd: int, command: int, argument: bytes) -> bool:
    """Call fcntl(2) without letting another thread run; False: ask fcntl why it did not work."""
    call = _control()
    return call is not None and call(fd, command, argument) == 0


def size_and_links_now(fd: int) -> tuple[int, int] | None:
    """Return size and links of an open file without letting another thread run.

    None: ask fstat, which says why it did not work.
    """
    state, _, new_buffer, _ = _tail()
    if state is None:
        return None
    found = new_buffer()
    if state(fd, b"", _EMPTY_PATH, _LINKS_AND_SIZE, found) != 0:
        return None
    links, size = _STATX.unpack(found)
    return size, links


def tail_now(fd: int) -> tuple[int, int, bytes] | None:
    """Return size, links and last byte of an open file without letting another thread run.

    The byte is empty where the file is. None: ask fstat and pread, which say why it did not work.
    """
    state, read, new_buffer, offset_of = _tail()
    if state is None or read is None:
        return None
    found = new_buffer()
    if state(fd, b"", _EMPTY_PATH, _LINKS_AND_SIZE, found) != 0:
        return None
    links, size = _STATX.unpack(found)
    if size == 0:
        return 0, links, b""
    return (size, links, found[0]) if read(fd, found, 1, offset_of(size - 1)) == 1 else None


def find_bytes(data: bytes, wanted: bytes, start: int, end: int) -> int:
    """Do as `data.find(wanted, start, end)` in half its time, where the library can."""
    call = _memmem()
    if call is None:  # pragma: no cover - Windows
        return data.find(wanted, start, end)
    address = _address_of(data)
    found = call(address + start, max(0, end - start), wanted, len(wanted))
    return found - address if found else -1


def _address_of(data: bytes) -> int:
    import ctypes  # noqa: PLC0415 - as below

    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


@lru_cache(maxsize=1)
def _memmem() -> Any:
    import ctypes  # noqa: PLC0415 - as below

    call = getattr(ctypes.PyDLL(None), "memmem", None)
    if call is not None:
        call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
        call.restype = ctypes.c_void_p
    return call


@lru_cache(maxsize=8)
def _function(name: str) -> tuple[Any, Callable[[], int]]:
    """Return a function, None where the library has none, and how to ask what went wrong."""
    import ctypes  # noqa: PLC0415 - readers of files never pay for it

    call = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if call is not None and name == "sync_file_range":
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    if call is not None and name == "madvise":
        call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return call, ctypes.get_errno


@lru_cache(maxsize=1)
def _control() -> Any:
    """Return fcntl that keeps the interpreter, None where there is none."""
    return _function_now("fcntl")


@lru_cache(maxsize=1)
def _tail() -> tuple[Any, Any, Callable[[], Any], Callable[[int], Any]]:
    """Return statx and pread that do so, and what makes a buffer, and an offset in a file."""
    import ctypes  # noqa: PLC0415 - as above

    offset = ctypes.c_int64
    return _function_now("statx"), _function_now("pread"), ctypes.c_char * _STATX.size, offset


def _function_now(name: str) -> Any:
    import ctypes  # noqa: PLC0415 - as above

    # No types are declared: converting by them costs more than what plain numbers and bytes take.
    return getattr(ctypes.PyDLL(None), name, None) if _IS_64_BIT_LINUX else None
