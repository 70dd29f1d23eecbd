"""What telemetry costs a rollout: driver and servers in one process, telemetry off and on in turns.

    python bench/telemetry_rollouts.py [--slices 60] [--repeats 5] [--modes "off;on;off again"]

One process runs all, so that no two differ by where their parts lie in memory; a slice is 20 tasks
of mcqa so many times, 64 in flight, before a provider on loopback that answers at once. The modes
and the table are those of `bench/telemetry.py`, CPU is that of all threads of this process.
"""

import argparse
import gc
import json
import logging
import os
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvloop
from telemetry import ALL_CORES, MODES, ROOT, ROWS, report, started, with_collector

from nemo_gym.config.components import builtin_root
from nemo_gym.rollouts.collect import CollectOptions
from nemo_gym.rollouts.prepare import RunRequest, prepare_run
from nemo_gym.rollouts.run import collect_run
from nemo_gym.runtime.memory import settle_memory
from nemo_gym.telemetry.observer import observe_event_loop
from nemo_gym.telemetry.providers import start_telemetry

sys.path.insert(0, str(ROOT / "tests"))
from support.in_cell import InCell

AGENT = "mcqa_simple_agent"
TASKS = builtin_root() / "resources_servers/mcqa/data/example.jsonl"


def servers_of_mcqa(provider: str) -> dict[str, Any]:
    model = {"openai_base_url": f"{provider}/v1", "openai_api_key": "k", "openai_model": "bench"}
    agent = {
        "resources_server": {"type": "resources_servers", "name": "mcqa"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    parts: dict[str, tuple[str, str, dict[str, Any]]] = {
        "policy_model": ("responses_api_models", "openai_model", model),
        "mcqa": ("resources_servers", "mcqa", {"grading_mode": "letter"}),
        AGENT: ("responses_api_agents", "simple_agent", agent),
    }
    return {
        name: {kind: {implementation: {"entrypoint": "app.py", **settings}}}
        for name, (kind, implementation, settings) in parts.items()
    }


async def cpu_us(cell: InCell, folder: Path, repeats: int) -> float:
    """Run the tasks so many times; return the CPU of this process for each rollout, in µs."""
    asked = RunRequest(
        (TASKS,), folder / "out.jsonl", AGENT, limit=ROWS, num_repeats=repeats, mode="overwrite"
    )
    run = prepare_run(asked, cell.tree, {AGENT})
    try:
        run.begin()
        gc.collect()
        before = time.process_time()
        told = await collect_run(run, cell.client, options=CollectOptions(concurrency=64))
        took = time.process_time() - before
    finally:
        run.close()
    if told.finished != repeats * ROWS:
        sys.exit(f"only {told.finished} rollouts finished")
    return took / told.finished * 1e6


async def compare(provider: str, collector: str, slices: int, repeats: int) -> dict[str, Any]:
    cell = InCell(servers_of_mcqa(provider))
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    shuffle = random.Random(1).sample  # noqa: S311 - the same order each time
    with tempfile.TemporaryDirectory() as folder:
        for number in range(slices + 1):
            for mode in shuffle(list(MODES), len(MODES)):
                settings = with_collector(MODES[mode], collector)
                handle = start_telemetry(settings, service_name="bench", instance="bench")
                async with observe_event_loop("driver"):
                    await cpu_us(cell, Path(folder), 1)
                    cost = await cpu_us(cell, Path(folder), repeats)
                handle.shutdown()
                # The first of each loads what it needs.
                if number:
                    found[mode].append(cost)
            if number == 0:
                settle_memory()
    await cell.aclose()
    return found


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    options.add_argument("--slices", type=int, default=60)
    options.add_argument("--repeats", type=int, default=5, help="of 20 tasks, in a slice")
    options.add_argument("--modes", default="off;on;off again", help="with a semicolon between")
    options.add_argument("--json", type=Path, help="also write the figures here")
    given = options.parse_args()
    for mode in set(MODES) - set(given.modes.split(";")):
        del MODES[mode]
    logging.disable()
    with ExitStack() as stack:
        collector = stack.enter_context(
            started(sys.executable, str(ROOT / "bench/telemetry.py"), "--collect")
        )
        provider = stack.enter_context(
            started(sys.executable, "-m", "support.provider", "--text", "Answer: B")
        )
        os.sched_setaffinity(0, ALL_CORES[:1])
        asked = compare(provider.origin, collector.origin, given.slices, given.repeats)
        found = report("A rollout of mcqa, driver and servers in one process", uvloop.run(asked))
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
