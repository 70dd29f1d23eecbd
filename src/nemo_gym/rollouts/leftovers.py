"""The output and failures of earlier sessions: read once, mended, and counted.

A line that a crash left torn or damaged is dropped, and so is a second row of a pair: afterwards
the output is JSON lines again with every pair at most once. Memory holds one line.
"""

import contextlib
import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypeAlias

from nemo_gym.files.jsonl import JsonlAppender
from nemo_gym.files.replace import replacing
from nemo_gym.rollouts.aggregate import Aggregator
from nemo_gym.rollouts.lines import (
    Members,
    NotAnObject,
    join_members,
    members_of,
    split_members,
    text_of,
)
from nemo_gym.rollouts.outcome import FAILURE_CLASS_KEY, numbers_of
from nemo_gym.rollouts.paths import RunFiles
from nemo_gym.rollouts.plan import AGENT_REF_KEY
from nemo_gym.rollouts.resume import RunIndex, pair_of
from nemo_gym.wire.json import has_number_too_long

__all__ = ["agent_of", "index_run", "read_lines", "read_members", "settle_failures"]

logger = logging.getLogger(__name__)

_LONGEST_LINE = 1 << 30
_BLOCK = 1 << 20


def index_run(
    files: RunFiles, index: RunIndex, aggregator: Aggregator, row_keys: frozenset[str]
) -> None:
    """Note in `index` what earlier sessions did, and add finished rollouts to `aggregator`.

    The output and the failures are mended in place where a crash damaged them.
    """

    def keep_output(members: Members) -> bool:
        pair = pair_of(members)
        if pair is None or not index.add_finished(pair):
            return False
        aggregator.add(numbers_of(members, agent_of(members), pair[0], row_keys))
        return True

    def keep_failure(members: Members) -> bool:
        pair = pair_of(members)
        if pair is not None:
            index.add_failure(pair, members)
        return pair is not None

    index.dropped_lines += _mend(files.output, keep_output)
    for path in (files.retried, files.failures):
        index.dropped_lines += _mend(path, keep_failure)


def settle_failures(files: RunFiles, index: RunIndex, aggregator: Aggregator) -> Counter[str]:
    """Leave one row in the failures for each pair that has none in the output: its last.

    Earlier ones go to the retried failures. Returns how many are left, by class, and adds them to
    `aggregator`. Raises `OSError` with the failures as they were.
    """
    left: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        retried: list[JsonlAppender] = []

        def keep(members: Members) -> bool:
            pair = pair_of(members)
            if pair is None or index.is_settled_by(pair, members):
                failure_class = text_of(members.get(FAILURE_CLASS_KEY)) or "agent_error"
                left[failure_class] += 1
                aggregator.add_failure(agent_of(members), failure_class)
                return True
            if not retried:
                retried.append(stack.enter_context(JsonlAppender(files.retried)))
            retried[0].append(join_members(members))
            return False

        dropped = _dropped_by(files.failures, keep)
    # The retried failures are durable by now: a crash here leaves a row in both, which is seen.
    _cut_out(files.failures, dropped)
    return left


def read_lines(path: Path) -> Iterator[Members | None]:
    """Yield the rows of an output or failures file; None for a line that is damaged."""
    with path.open("rb") as file:
        while line := file.readline(_LONGEST_LINE):
            if line.strip():
                yield _members_or_none(line)


def read_members(path: Path) -> Iterator[Members]:
    """Yield the rows of an output or failures file; what is no row is left out."""
    return (members for members in read_lines(path) if members is not None)


def agent_of(members: Members) -> str:
    """Return the agent that a row names; empty when it names none."""
    return text_of(members_of(members.get(AGENT_REF_KEY)).get("name")) or ""


_Range: TypeAlias = tuple[int, int]
"""Offset and length of a line."""


def _mend(path: Path, keep: Callable[[Members], bool]) -> int:
    """Drop the lines of a file that are damaged or not kept; return how many."""
    dropped = _dropped_by(path, keep)
    if dropped:
        logger.warning("%s: dropped %d lines that a crash left", path, len(dropped))
        _cut_out(path, dropped)
    return len(dropped)


def _dropped_by(path: Path, keep: Callable[[Members], bool]) -> list[_Range]:
    return [place for place, members in _lines(path) if members is None or not keep(members)]


def _lines(path: Path) -> Iterator[tuple[_Range, Members | None]]:
    """Yield every line's place with its members; None for one that is damaged."""
    offset = 0
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        while line := file.readline(_LONGEST_LINE):
            if line.strip():
                yield (offset, len(line)), _members_or_none(line)
            offset += len(line)


def _members_or_none(line: bytes) -> Members | None:
    try:
        # A row that its readers refuse is no row.
        return None if has_number_too_long(line) else split_members(line)
    except NotAnObject:
        return None


def _cut_out(path: Path, ranges: Sequence[_Range]) -> None:
    """Replace a file by itself without some ranges, which are in order; durable on return."""
    if not ranges:
        return
    with (
        path.open("rb") as old,
        replacing(path) as descriptor,
        os.fdopen(descriptor, "wb", closefd=False) as new,
    ):
        for offset, length in ranges:
            _copy(old, new, offset - old.tell())
            old.seek(offset + length)
        shutil.copyfileobj(old, new)


def _copy(old: BinaryIO, new: BinaryIO, length: int) -> None:
    while length > 0 and (part := old.read(min(length, _BLOCK))):
        new.write(part)
        length -= len(part)
