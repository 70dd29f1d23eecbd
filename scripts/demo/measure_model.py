"""Ask the local model the demo's questions without anything of a run around it.

    python scripts/demo/measure_model.py [--threads 1] [--slots 2] [--repeats 2] [--model PATH]

Prints how many answers are right, how many differ from the first pass, and what it took. Repeats
ask in another order, so that answers which depend on their neighbours show.
"""

import argparse
import asyncio
import json
import os
import random
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nemo_gym.resources_servers.mcqa.extract import extract, final_text
from nemo_gym.resources_servers.mcqa.row import Judging, response_text
from nemo_gym.responses_api_models.local_model.llama import Llama, LlamaSettings
from nemo_gym.responses_api_models.local_model.weights import find_weights

__all__ = ["main"]

_ROWS = Path(__file__).parents[2] / "src/nemo_gym/resources_servers/mcqa/data/demo.jsonl"
_SAMPLING = {"temperature": 0, "max_output_tokens": 24}


def main() -> None:
    """Measure and print one line a pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--poll", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--model", default=None)
    asyncio.run(_measure(parser.parse_args()))


async def _measure(asked: argparse.Namespace) -> None:
    weights = find_weights(asked.model)
    settings = LlamaSettings(
        path=str(weights.path),
        alias=weights.alias,
        context_size=4096,
        slots=asked.slots,
        threads=asked.threads,
        http_threads=asked.slots + 4,
        poll=asked.poll,
    )
    llama = Llama(settings, start_timeout_s=300)
    began = time.monotonic()
    origin = await llama.origin()
    print(f"loaded in {time.monotonic() - began:.1f} s")
    try:
        await asyncio.to_thread(_passes, origin, asked, f"/proc/{llama.pid}/stat")
    finally:
        await llama.stop()


def _passes(origin: str, asked: argparse.Namespace, stat: str) -> None:
    rows = [json.loads(line) for line in _ROWS.read_text("utf-8").splitlines()][: asked.limit]
    first: dict[str, str] = {}
    for repeat in range(asked.repeats):
        order = list(rows)
        random.Random(repeat).shuffle(order)  # noqa: S311 - an order, no secret
        began, cpu_began = time.monotonic(), _cpu_s(stat)
        with ThreadPoolExecutor(asked.slots * 2) as pool:
            texts = list(pool.map(lambda row: _ask(origin, row), order))
        took, cpu = time.monotonic() - began, _cpu_s(stat) - cpu_began
        answers = {row["id"]: text for row, text in zip(order, texts, strict=True)}
        first = first or answers
        right = sum(_is_right(row, answers[row["id"]]) for row in rows)
        differ = sum(first[name] != text for name, text in answers.items())
        print(
            f"threads {asked.threads} slots {asked.slots}: {right}/{len(rows)} right, "
            f"{differ} differ from the first pass, {took:.1f} s, {cpu:.1f} s of CPU"
        )


def _ask(origin: str, row: dict[str, Any]) -> str:
    body = json.dumps({**row["responses_create_params"], **_SAMPLING}).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{origin}/v1/responses", body, headers)  # noqa: S310 - loopback
    with urllib.request.urlopen(request, timeout=600) as reply:  # noqa: S310
        return response_text(json.load(reply))


def _is_right(row: dict[str, Any], text: str) -> bool:
    judging = Judging.of(row, "letter")
    return extract(final_text(text), judging.options, judging.mode).letter == judging.expected


def _cpu_s(stat: str) -> float:
    fields = Path(stat).read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
