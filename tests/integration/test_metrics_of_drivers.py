"""A run is one target for Prometheus, its drivers in processes of their own included."""

import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from support.eval_command import environ_of, task_file
from support.eval_servers import env_start, provider_process

PATIENCE_S = 30.0
OFFERED = "gym_driver_rollouts_offered_total{"
OBSERVED = "++telemetry.metrics.enabled=true"


def driver(folder: Path, port: str, output: str) -> subprocess.Popen[bytes]:
    """Start an evaluation by servers that run already."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "nemo_gym", "eval", "run", "--no-serve", port, OBSERVED),
            *("--agent", "counter_agent", "--input", "rows.jsonl", "--output", output),
            *("--concurrency", "4"),
        ],
        cwd=folder,
        env=environ_of(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def scraped(port: str, drivers: int) -> list[str]:
    """Return the samples that the head server exposes once it has those of so many drivers."""
    url = f"http://127.0.0.1:{port.rpartition('=')[2]}/metrics"
    samples: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        text = urllib.request.urlopen(url, timeout=10).read().decode()
        samples = [line for line in text.splitlines() if not line.startswith("#")]
        if sum(line.startswith(OFFERED) for line in samples) == drivers:
            break
    return samples


def test_the_head_server_exposes_drivers_that_use_its_servers(tmp_path: Path) -> None:
    task_file(tmp_path, [{}] * 400)
    with (
        provider_process(answer={"text": "done"}, delay_s=0.5) as origin,
        env_start(tmp_path, origin, OBSERVED) as port,
    ):
        drivers = [driver(tmp_path, port, f"{name}.jsonl") for name in ("a", "b")]
        try:
            samples = scraped(port, len(drivers))
        finally:
            for process in drivers:
                process.send_signal(signal.SIGTERM)
            for process in drivers:
                process.wait(20)
        afterwards = scraped(port, 0)

    keys = [line.rpartition(" ")[0] for line in samples]
    offered = [key for key in keys if key.startswith(OFFERED)]
    assert len(offered) == 2
    assert all('process="driver"' in key for key in offered)
    assert len(keys) == len(set(keys))
    assert not [line for line in afterwards if 'process="driver"' in line]
    assert any('process="cell-0"' in line for line in afterwards)
