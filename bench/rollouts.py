"""CPU per rollout, fixed cost, memory: `gym eval run` on mcqa against a zero-delay provider.

    python bench/rollouts.py [--rollouts 2000] [--pairs 3] [--memory] [--json FILE]

Placements take turns (A B C A B C …) so that a drifting machine hits all alike; medians are shown.
CPU is user + system of every process of the run added up, as the kernel accounts it when the run
is reaped; the provider's is not counted. The cost of a rollout is the difference between a long
and a short run divided by the rollouts between them, so start-up does not ride along.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GYM = Path(sys.executable).parent / "gym"
ROWS = 20
PLACEMENTS = {
    "one cell": [],
    "2 cells": ["--workers", "2"],
    "one process a server": ["--one-process-each"],
}


@dataclass(frozen=True)
class Run:
    wall_s: float
    cpu_s: float
    max_rss_mb: float


def start_provider() -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "support.provider", "--text", "Answer: B"],
        cwd=ROOT / "tests",
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["origin"]


def run_once(origin: str, repeats: int, extra: list[str], folder: Path, limit: int = ROWS) -> Run:
    output = folder / "out.jsonl"
    for old in folder.iterdir():
        old.unlink()
    command = [
        str(GYM), "eval", "run", "--resources-server", "mcqa", "--model-type", "openai_model",
        "--model", "bench", "--model-url", f"{origin}/v1", "--model-api-key", "none",
        "--agent", "mcqa_simple_agent", "--input", "resources_servers/mcqa/data/example.jsonl",
        "--output", str(output), "--limit", str(limit), "--num-repeats", str(repeats),
        "--concurrency", "64", "--json", *extra,
    ]  # fmt: skip
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=folder.parent, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        assert process.stderr is not None
        sys.exit(
            f"{' '.join(command)}\nended with {process.returncode}:\n"
            f"{process.stderr.read().decode()}"
        )
    with output.open("rb") as lines:
        finished = sum(1 for _ in lines)
    assert finished == limit * repeats, f"{finished} rows where {limit * repeats} were due"
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def cost_table(origin: str, rollouts: int, pairs: int, folder: Path) -> list[dict[str, object]]:
    repeats = rollouts // ROWS
    found: dict[str, list[tuple[Run, Run]]] = {name: [] for name in PLACEMENTS}
    for _ in range(pairs):
        for name, extra in PLACEMENTS.items():
            short = run_once(origin, 1, extra, folder, limit=1)
            found[name].append((short, run_once(origin, repeats, extra, folder)))
    rows = []
    for name, runs in found.items():
        between = repeats * ROWS - 1
        rows.append(
            {
                "placement": name,
                "cpu_ms_per_rollout": median((b.cpu_s - a.cpu_s) / between * 1e3 for a, b in runs),
                "rollouts_per_s": median(between / (b.wall_s - a.wall_s) for a, b in runs),
                "fixed_wall_s": median(a.wall_s for a, _ in runs),
                "fixed_cpu_s": median(a.cpu_s for a, _ in runs),
                "max_rss_mb": median(b.max_rss_mb for _, b in runs),
            }
        )
    return rows


def memory_table(origin: str, folder: Path) -> list[dict[str, object]]:
    return [
        {"rollouts": n, "driver_max_rss_mb": run_once(origin, n // ROWS, [], folder).max_rss_mb}
        for n in (1_000, 10_000, 50_000)
    ]


def start_table(origin: str, pairs: int) -> dict[str, float]:
    """Seconds from `gym env start` to all healthy, and what idle servers hold, in MB."""
    healthy: list[float] = []
    idle: list[float] = []
    for _ in range(pairs):
        with tempfile.TemporaryDirectory() as state:
            process = subprocess.Popen(
                [str(GYM), "env", "start", "--resources-server", "mcqa", "--model-type",
                 "openai_model", "--model", "bench", "--model-url", f"{origin}/v1",
                 "--model-api-key", "none", "++head_server.port=0"],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                env={**os.environ, "XDG_STATE_HOME": state},
            )  # fmt: skip
            assert process.stdout is not None
            began = time.monotonic()
            for line in process.stdout:
                if "healthy" in line:
                    healthy.append(time.monotonic() - began)
                    idle.append(sum(pss_mb(pid) for pid in family(process.pid)))
                    break
            process.terminate()
            process.wait(10)
    return {"start_to_healthy_s": median(healthy), "idle_pss_mb": median(idle)}


def family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(p for child in children for p in family(int(child)))]


def pss_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def median(values) -> float:  # type: ignore[no-untyped-def]
    return round(statistics.median(values), 3)


def show(title: str, rows: list[dict[str, object]]) -> None:
    print(f"\n{title}")
    print(" | ".join(rows[0]))
    for row in rows:
        print(" | ".join(str(value) for value in row.values()))


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    options.add_argument("--rollouts", type=int, default=2000)
    options.add_argument("--pairs", type=int, default=3)
    options.add_argument("--memory", action="store_true", help="1,000 to 50,000 rollouts: minutes")
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    provider, origin = start_provider()
    base = Path(tempfile.mkdtemp(prefix="bench-rollouts-"))
    folder = base / "run"
    folder.mkdir()
    try:
        figures: dict[str, object] = {
            "cost": cost_table(origin, given.rollouts, given.pairs, folder),
            "start": start_table(origin, given.pairs),
        }
        show("cost", figures["cost"])  # type: ignore[arg-type]
        show("start", [figures["start"]])  # type: ignore[list-item]
        if given.memory:
            figures["memory"] = memory_table(origin, folder)
            show("memory", figures["memory"])  # type: ignore[arg-type]
        if given.json:
            given.json.write_text(json.dumps(figures, indent=1))
    finally:
        provider.terminate()
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
