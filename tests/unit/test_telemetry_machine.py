"""What the kernel tells of the machine and of the processes of a run."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nemo_gym.runtime.registry import process_start
from nemo_gym.telemetry.machine import busy_s, used_by_tree_s, waited_for_core_s

pytestmark = pytest.mark.skipif(
    used_by_tree_s() is None or waited_for_core_s() is None,
    reason="needs a kernel that tells of processes and their children",
)
BURN = """
import sys, time
while time.process_time() < 0.3:
    pass
print("burnt", flush=True)
sys.stdin.read()
"""


def burnt_by_tree(*, let_go: bool) -> float:
    """Return how much of all cores a child counts for, while it lives or after it has ended."""
    before = used_by_tree_s()
    child = subprocess.Popen(
        [sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == "burnt\n"
    if let_go:
        child.stdin.close()
        child.wait(10)
    after = used_by_tree_s()
    child.stdin.close()
    child.stdout.close()
    child.wait(10)
    assert before is not None
    assert after is not None
    return after - before


@pytest.mark.parametrize("let_go", [False, True], ids=["alive", "ended"])
def test_what_a_process_started_is_among_what_it_used(let_go: bool) -> None:
    cores = os.cpu_count() or 1

    assert burnt_by_tree(let_go=let_go) >= 0.25 / cores


def test_a_process_may_have_a_name_of_any_bytes(tmp_path: Path) -> None:
    program = os.fsencode(tmp_path) + b"/caf\xe9) 1 (2"
    os.symlink(sys.executable, program)
    script = "import sys; print(flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [program, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()

    started, used = process_start(child.pid), used_by_tree_s()
    child.communicate()

    assert started is not None
    assert started > 0
    assert used is not None


def test_time_of_cores_only_grows() -> None:
    earlier = busy_s(), used_by_tree_s(), waited_for_core_s()
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    later = busy_s(), used_by_tree_s(), waited_for_core_s()

    for before, after in zip(earlier, later, strict=True):
        assert before is not None
        assert after is not None
        assert after >= before
