"""The capture store among processes, and on real file systems that are full or read-only."""

import json
import os
import resource
import subprocess
import sys
import textwrap
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.capture.store import CaptureStore
from nemo_gym.errors import ConfigMistake
from nemo_gym.files.jsonl import Damaged
from nemo_gym.ids import RolloutId
from support.capture_writers import ROLLOUTS, WriterServer, is_whole, made_row
from support.disks import FaultyDisk

TESTS = Path(__file__).parents[1]


def run_python(code: str, *arguments: object) -> list[str]:
    """Run a program; return the lines it printed."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=TESTS, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def rows_of(store: CaptureStore, rollout: str) -> list[dict[str, Any]]:
    return [item for item in store.read(rollout) if not isinstance(item, Damaged)]


def test_a_process_that_ends_waits_for_what_it_handed_over(tmp_path: Path) -> None:
    run_python(
        """
        import sys
        from nemo_gym.capture.store import CaptureStore
        from support.capture_writers import ROLLOUTS, made_row
        store = CaptureStore(sys.argv[1])
        for n in range(300):
            store.submit(made_row(ROLLOUTS[n % 4], f"c{n}", 4000))
        """,
        tmp_path,
    )
    store = CaptureStore(tmp_path)

    assert sum(len(rows_of(store, rollout)) for rollout in ROLLOUTS) == 300
    assert list((tmp_path / ".nemo_gym" / "log").iterdir()) == []


WRITE_MANY = """
    import sys
    from nemo_gym.capture.store import CaptureStore
    from nemo_gym.capture.row import Row
    from nemo_gym.ids import RolloutId
    from support.disks import FaultyDisk, LocklessDisk
    disk = LocklessDisk() if sys.argv[3] == "lockless" else FaultyDisk()
    disk.local = sys.argv[3] == "locks"
    store = CaptureStore(sys.argv[1], disk=disk)
    futures = []
    for n in range(100):
        rollout = RolloutId(f"{n % 20}-0")
        call_id = f"{sys.argv[2]}-{n:03}"
        line = '{"model_call_id":"%s","completed_at":%d,"rollout":"%s","x":"%s"}'
        line = line % (call_id, n, rollout, "x" * 9000)
        futures.append(store.submit(Row(rollout, call_id, line.encode())))
    for future in futures:
        future.result()
"""


@pytest.mark.parametrize("locks", ["locks", "network", "lockless"])
def test_two_processes_on_20_rollouts_keep_each_row_under_its_own_id(
    tmp_path: Path, locks: str
) -> None:
    command = [sys.executable, "-c", textwrap.dedent(WRITE_MANY), str(tmp_path)]
    writers = [
        subprocess.Popen([*command, name, locks], cwd=TESTS, stderr=subprocess.DEVNULL)
        for name in ("a", "b")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    store = CaptureStore(tmp_path)

    assert len(store.rollouts()) == 20
    for rollout in store.rollouts():
        items = store.read(rollout)
        rows = rows_of(store, rollout)
        assert len(items) == len(rows) == 10
        assert {row["rollout"] for row in rows} == {rollout}
        for writer in ("a", "b"):
            own = [row["model_call_id"] for row in rows if row["model_call_id"][0] == writer]
            assert own == sorted(own)
        if locks == "lockless":
            order = [(row["completed_at"], row["model_call_id"]) for row in rows]
            assert order == sorted(order)


def test_clearing_while_a_server_writes_leaves_whole_rows_of_afterwards(tmp_path: Path) -> None:
    server = WriterServer()
    pid = server.start(tmp_path, seed=1, sizes=[3000, 9000])
    collector = CaptureStore(tmp_path)
    for _ in range(20):
        server.wait_for("kept", 10)
        collector.clear(ROLLOUTS)
    cleared_at = time.monotonic_ns()
    while int(server.wait_for("kept", 5).rpartition("-")[2]) < cleared_at:
        continue
    server.kill(pid)
    server.close()
    rows = [row for rollout in ROLLOUTS for row in rows_of(collector, rollout)]

    assert all(is_whole(row) for row in rows)
    late = {call for call in server.kept if int(call.rpartition("-")[2]) > cleared_at}
    assert late
    assert {row["model_call_id"] for row in rows} >= late
    damaged = sum(isinstance(item, Damaged) for r in ROLLOUTS for item in collector.read(r))
    assert damaged <= 1


def test_a_limit_on_file_sizes_loses_the_rows_it_must_and_says_so(tmp_path: Path) -> None:
    (line,) = run_python(
        """
        import json, resource, sys
        from nemo_gym.capture.store import CaptureStore
        from support.capture_writers import made_row
        from nemo_gym.ids import RolloutId
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        store = CaptureStore(sys.argv[1])
        full, other = RolloutId("1-0"), RolloutId("2-0")
        outcomes = [store.submit(made_row(full, f"a{n}", 30_000)).exception() for n in range(6)]
        outcomes += [store.submit(made_row(other, "b", 30_000)).exception()]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        outcomes += [store.submit(made_row(full, "after", 30_000)).exception()]
        print(json.dumps([outcome is None for outcome in outcomes]))
        """,
        tmp_path,
    )
    store = CaptureStore(tmp_path)

    assert json.loads(line) == [True, True, True, False, False, False, True, True]
    assert [row["model_call_id"] for row in store.read("1-0") if isinstance(row, dict)] == [
        "a0",
        "a1",
        "a2",
        "after",
    ]
    assert len(store.read("1-0")) == 4
    assert (store.is_incomplete("1-0"), store.is_incomplete("2-0")) == (True, False)


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["/usr/bin/mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or not Path(mount[0]).exists():
        pytest.skip("no right to mount a file system")
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("no right to mount a file system")
    yield place
    subprocess.run(["/usr/bin/umount", "-l", str(place)], check=True)


def test_a_file_system_that_fills_up_and_empties_again(small_disk: Path) -> None:
    store = CaptureStore(small_disk)
    store.submit(made_row(ROLLOUTS[0], "before", 1000)).result()
    (small_disk / "ballast").write_bytes(b"x" * 300_000)
    outcomes = [
        store.submit(made_row(RolloutId(f"{n}-1"), "c", 60_000)).exception() for n in range(20)
    ]
    (small_disk / "ballast").unlink()
    store.submit(made_row(ROLLOUTS[0], "after", 1000)).result()

    assert None in outcomes
    assert any(isinstance(outcome, OSError) for outcome in outcomes)
    for number, outcome in enumerate(outcomes):
        assert len(store.read(f"{number}-1")) == (outcome is None)
        assert store.is_incomplete(f"{number}-1") == (outcome is not None)
    assert [row["model_call_id"] for row in rows_of(store, ROLLOUTS[0])] == ["before", "after"]
    store.close()


def test_a_read_only_file_system_is_known_at_start_and_read_all_the_same(small_disk: Path) -> None:
    store = CaptureStore(small_disk)
    store.submit(made_row(ROLLOUTS[0], "c", 1000)).result()
    store.close()
    subprocess.run(["/usr/bin/mount", "-o", "remount,ro", str(small_disk)], check=True)
    reader = CaptureStore(small_disk)

    assert len(rows_of(reader, ROLLOUTS[0])) == 1
    with pytest.raises(ConfigMistake, match="Read-only file system"):
        CaptureStore(small_disk).open_for_writing()
    with pytest.raises(ConfigMistake):
        CaptureStore(small_disk / "below").open_for_writing()


def test_no_descriptor_left_at_all_marks_the_rollout_or_says_it_by_the_claim(
    tmp_path: Path,
) -> None:
    store = CaptureStore(tmp_path, disk=FaultyDisk())
    store.open_for_writing()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with (tmp_path / "spare").open("w") as spare:
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare.fileno() + 1, limits[1]))
        try:
            claim = store.claim(ROLLOUTS[1])
            error = store.submit(made_row(ROLLOUTS[1], "c", 10), claim).exception()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert isinstance(error, OSError)
    assert CaptureStore(tmp_path).is_incomplete(ROLLOUTS[1])
    assert not CaptureStore(tmp_path).is_pending(ROLLOUTS[1])
    store.close()
