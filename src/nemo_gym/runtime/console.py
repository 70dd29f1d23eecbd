"""Follow what child processes print and hand on each whole line, with its process in front."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

__all__ = ["follow_consoles"]

_POLL_S = 0.2


async def follow_consoles(
    paths: Sequence[Path], emit: Callable[[str], None], poll_s: float = _POLL_S
) -> None:
    """Emit every line appended to `paths` until cancelled.

    A line that names no server gets the name of its file in front.
    Files are polled and not piped: a console that stands still must never hold up a server.
    """
    open_files: dict[Path, BinaryIO] = {}
    rests: dict[Path, bytes] = dict.fromkeys(paths, b"")
    try:
        while True:
            for path in paths:
                if path not in open_files and path.exists():
                    open_files[path] = path.open("rb")
                if path in open_files:
                    rests[path] = _emit_lines(rests[path], open_files[path], path, emit)
            await asyncio.sleep(poll_s)
    finally:
        for path, source in open_files.items():
            _emit_lines(rests[path], source, path, emit)
            source.close()


def _emit_lines(rest: bytes, source: BinaryIO, path: Path, emit: Callable[[str], None]) -> bytes:
    *lines, tail = (rest + source.read()).split(b"\n")
    for line in lines:
        text = line.decode("utf-8", "replace")
        emit(text if text.startswith("[") else f"[{path.name.partition('.')[0]}] {text}")
    return tail
