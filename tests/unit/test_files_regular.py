"""Opening what must be a file: anything else is refused at once, and never waited for."""

import fcntl
import os
import signal
import socket
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from nemo_gym.files.disk import Disk

OPENS: list[Callable[[Disk, Path], int]] = [
    Disk.open_read,
    Disk.open_existing,
    Disk.open_append,
    Disk.open_read_write,
]


@pytest.fixture
def odd_entries(tmp_path: Path) -> Generator[list[Path]]:
    pipe, listening, device, folder = (tmp_path / n for n in ("pipe", "socket", "device", "dir"))
    os.mkfifo(pipe)
    device.symlink_to("/dev/null")
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(listening))
        yield [pipe, listening, device, folder]


@pytest.mark.parametrize("opened", OPENS, ids=lambda method: method.__name__)
def test_only_regular_files_are_opened_and_the_error_names_the_path(
    odd_entries: list[Path], opened: Callable[[Disk, Path], int]
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    refused: list[OSError] = []
    for path in odd_entries:
        with pytest.raises(OSError, match=path.name) as caught:
            opened(Disk(), path)
        refused.append(caught.value)

    assert [error.strerror for error in refused] == ["Not a regular file"] * 3 + ["Is a directory"]
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_is_leased_out_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "leased"
    path.write_bytes(b"x")
    holder = os.open(path, os.O_RDONLY)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    given_back = threading.Timer(0.1, fcntl.fcntl, (holder, fcntl.F_SETLEASE, fcntl.F_UNLCK))
    given_back.start()
    try:
        fd = Disk().open_append(path)
    finally:
        given_back.join()
        signal.signal(signal.SIGIO, before)
        os.close(holder)

    assert os.read(fd, 2) == b"x"
    os.close(fd)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
@pytest.mark.parametrize("opened", [Disk.open_append, Disk.open_read_write])
def test_the_umask_alone_says_who_else_may_use_a_new_file(
    tmp_path: Path, opened: Callable[[Disk, Path], int], umask: int, mode: int
) -> None:
    before = os.umask(umask)
    try:
        fd = opened(Disk(), tmp_path / "new")
    finally:
        os.umask(before)

    assert os.fstat(fd).st_mode & 0o777 == mode
    os.close(fd)
