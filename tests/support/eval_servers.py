"""A provider, and servers of `gym env start`, in processes of their own."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.eval_command import environ_of

__all__ = ["COUNTER", "TESTS", "env_start", "provider_process"]

TESTS = Path(__file__).parent.parent
COUNTER = str(TESTS / "fixtures" / "placement")


@contextmanager
def provider_process(**behaviour: Any) -> Generator[str]:
    """Run a provider that always behaves so; give its origin."""
    process = subprocess.Popen(
        [sys.executable, "-m", "support.provider", "--behaviour", json.dumps(behaviour)],
        cwd=TESTS,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process:
        try:
            yield json.loads(process.stdout.readline())["origin"]
        finally:
            process.terminate()


@contextmanager
def env_start(
    folder: Path,
    origin: str,
    *more: str,
    model_type: str = "openai_model",
    console: list[str] | None = None,
) -> Generator[str]:
    """Run `gym env start` on a port of its own; give what `--no-serve` needs to find it.

    What it printed is in `console` once it has ended.
    """
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "nemo_gym", "env", "start", "--resources-server", "counter"),
            *("--search-dir", COUNTER, "--model-type", model_type, "--model-url", origin),
            *("--model", "m", "--model-api-key", "k", "++head_server.port=0", *more),
        ],
        cwd=folder,
        env=environ_of(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process:
        told = []
        for line in process.stdout:
            told.append(line)
            if "healthy" in line:
                break
        found = re.search(r"head server http://127\.0\.0\.1:(\d+)", "".join(told))
        assert found, told
        try:
            yield f"++head_server.port={found[1]}"
        finally:
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=20)
            if console is not None:
                console += [*told, rest]
