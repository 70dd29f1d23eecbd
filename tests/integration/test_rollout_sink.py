"""Rows reach the disk whole and in groups; a disk that fails is told to those it concerns."""

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from nemo_gym.errors import OutputUnusable
from nemo_gym.rollouts.sink import RolloutSink
from support.rollouts import lines_of


class CountedFile:
    """A file in memory whose syncs can be held up."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.synced = 0
        self.syncs = 0
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.appended = threading.Event()
        self.full = False

    def append(self, line: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.lines.append(line)
        self.appended.set()

    def sync(self) -> None:
        assert self.may_sync.wait(10)
        self.syncs += 1
        self.synced = len(self.lines)

    def close(self) -> None:
        self.sync()


@pytest.fixture
def files() -> dict[str, CountedFile]:
    return {"x.jsonl": CountedFile(), "x_failures.jsonl": CountedFile()}


@pytest.fixture
def sink(files: dict[str, CountedFile]) -> RolloutSink:
    return RolloutSink(
        Path("x.jsonl"), Path("x_failures.jsonl"), open_file=lambda path: files[path.name]
    )


async def test_a_row_is_synced_before_it_counts(
    sink: RolloutSink, files: dict[str, CountedFile]
) -> None:
    await sink.keep("output", b"1")

    assert (files["x.jsonl"].lines, files["x.jsonl"].synced) == ([b"1"], 1)
    assert files["x_failures.jsonl"].lines == []
    sink.close()


async def test_what_comes_while_the_disk_works_shares_one_sync(
    sink: RolloutSink, files: dict[str, CountedFile]
) -> None:
    output = files["x.jsonl"]
    opened = output.syncs
    output.may_sync.clear()
    first = asyncio.ensure_future(sink.keep("output", b"first"))
    await asyncio.to_thread(output.appended.wait, 10)
    others = [asyncio.ensure_future(sink.keep("output", b"%d" % n)) for n in range(100)]
    await asyncio.sleep(0)
    output.may_sync.set()
    await asyncio.gather(first, *others)

    assert (len(output.lines), output.syncs - opened) == (101, 2)
    sink.close()


async def test_a_task_that_is_cancelled_does_not_lose_its_row(
    sink: RolloutSink, files: dict[str, CountedFile]
) -> None:
    output = files["x.jsonl"]
    output.may_sync.clear()
    kept = asyncio.ensure_future(sink.keep("output", b"1"))
    await asyncio.to_thread(output.appended.wait, 10)
    kept.cancel()
    output.may_sync.set()
    sink.close()

    assert output.synced == 1
    with pytest.raises(asyncio.CancelledError):
        await kept


async def test_rows_on_their_way_are_written_before_it_closes(
    sink: RolloutSink, files: dict[str, CountedFile]
) -> None:
    kept = [asyncio.ensure_future(sink.keep("failures", b"%d" % n)) for n in range(10)]
    await asyncio.sleep(0)
    sink.close()
    await asyncio.gather(*kept)

    assert len(files["x_failures.jsonl"].lines) == 10
    with pytest.raises(OutputUnusable, match="closed"):
        await sink.keep("output", b"late")


async def test_a_full_disk_is_told_to_the_rows_it_concerns(
    sink: RolloutSink, files: dict[str, CountedFile]
) -> None:
    files["x.jsonl"].full = True
    results = await asyncio.gather(
        sink.keep("output", b"1"), sink.keep("failures", b"2"), return_exceptions=True
    )

    assert isinstance(results[0], OutputUnusable)
    assert "No space left" in str(results[0])
    assert (results[1], files["x_failures.jsonl"].lines) == (None, [b"2"])
    sink.close()


async def test_two_hundred_at_once_are_two_hundred_whole_lines(tmp_path: Path) -> None:
    sink = RolloutSink(tmp_path / "x.jsonl", tmp_path / "x_failures.jsonl")
    await asyncio.gather(*(sink.keep("output", b'{"n":%d}' % n) for n in range(200)))
    sink.close()

    assert sorted(row["n"] for row in lines_of(tmp_path / "x.jsonl")) == list(range(200))


def test_a_file_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutputUnusable, match=r"Not a directory|File exists"):
        RolloutSink(tmp_path / "file" / "x.jsonl", _made(tmp_path / "file"))


def _made(path: Path) -> Path:
    path.write_text("")
    return path


async def test_both_files_are_synced_before_the_first_row_so_that_no_row_needs_more_files(
    sink: RolloutSink, files: dict[str, CountedFile]
) -> None:
    await sink.ready()

    assert [(file.syncs, file.lines) for file in files.values()] == [(1, []), (1, [])]
    sink.close()


async def test_a_slow_disk_holds_nothing_up_when_a_run_begins(
    sink: RolloutSink, files: dict[str, CountedFile]
) -> None:
    files["x.jsonl"].may_sync.clear()

    ready = asyncio.ensure_future(sink.ready())
    await asyncio.sleep(0)

    assert not ready.done()
    files["x.jsonl"].may_sync.set()
    await ready
    sink.close()


async def test_a_disk_whose_first_sync_fails_is_told_before_anything_runs() -> None:
    broken = CountedFile()

    def refuse() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    broken.sync = refuse  # type: ignore[method-assign]  # a disk that does no more than this
    sink = RolloutSink(Path("x.jsonl"), Path("f.jsonl"), open_file=lambda _: broken)
    with pytest.raises(OutputUnusable, match="Too many open files") as raised:
        await sink.ready()

    assert "ulimit -n" in (raised.value.mend or "")
    sink.close()
