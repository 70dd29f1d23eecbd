"""A real Prometheus that scrapes one target, and its HTTP API as Grafana asks it."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from nemo_gym.transport.base import Call
from nemo_gym.transport.http import HttpTransport

__all__ = ["SCRAPE_INTERVAL_S", "Answered", "Prometheus", "prometheus"]

SCRAPE_INTERVAL_S = 0.5
"""Also how long a scrape may take: a busy machine needs more than the 0.02 s of an idle one."""
_PATIENCE_S = 30.0
_READY = "Server is ready to receive web requests"
_CONFIG = """\
global:
  scrape_interval: {interval}ms
  scrape_timeout: {interval}ms
scrape_configs:
  - job_name: nemo_gym
    static_configs: [{{targets: ["{target}"]}}]
"""


@dataclass(frozen=True, slots=True)
class Answered:
    """What the API said to one question."""

    status: str
    """`success` or `error`."""
    data: Any
    """None where it is an error."""
    error: str = ""

    @property
    def series(self) -> list[dict[str, Any]]:
        """The series of a query; none where it is an error."""
        return list(self.data["result"]) if self.status == "success" else []


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A Prometheus that runs."""

    api: HttpTransport
    log: Path

    async def ask(self, route: str, **parameters: str | float) -> Answered:
        """Return the answer to a question below `/api/v1/`; `match` stands for `match[]`."""
        query = urlencode({"match[]" if k == "match" else k: v for k, v in parameters.items()})
        body = await (await self.api.send(Call("GET", f"/api/v1/{route}?{query}"))).read()
        said = json.loads(body)
        return Answered(said["status"], said.get("data"), said.get("error", ""))

    def complaints(self) -> list[str]:
        """Return what it warned of in its log, in 2.x and in 3.x."""
        return re.findall(r"^.*\blevel=(?:warn|error)\b.*$", self.log.read_text(), re.I | re.M)


@asynccontextmanager
async def prometheus(folder: Path, target: str) -> AsyncGenerator[Prometheus]:
    """Run a Prometheus that scrapes `host:port` and keeps everything in `folder`."""
    config, log = folder / "prometheus.yml", folder / "prometheus.log"
    interval = round(SCRAPE_INTERVAL_S * 1000)
    config.write_text(_CONFIG.format(interval=interval, target=target))
    with log.open("wb") as written:
        process = await asyncio.create_subprocess_exec(
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'prometheus'}",
            "--web.listen-address=127.0.0.1:0",
            stdout=written,
            stderr=written,
        )
    try:
        api = HttpTransport(f"http://{await _address_in(log, process)}")
        try:
            yield Prometheus(api, log)
        finally:
            await api.aclose()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _address_in(log: Path, process: asyncio.subprocess.Process) -> str:
    """Wait until Prometheus is ready; return where it listens: the kernel chose the port."""
    async with asyncio.timeout(_PATIENCE_S):
        while _READY not in (said := await asyncio.to_thread(log.read_text)):
            assert process.returncode is None, said
            await asyncio.sleep(0.05)
    found = re.search(r'msg="Listening on".* address=(\S+)', said)
    assert found is not None, said
    return found[1]
