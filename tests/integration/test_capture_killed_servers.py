"""Servers killed under load beside one that lives: every answer that a client has whole has a row.

NEMO_GYM_KILLS says how often; a few in the suite.
"""

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.jsonl import Damaged
from support.eval_servers import provider_process

GYM = str(Path(sys.executable).parent / "gym")
KILLS = int(os.environ.get("NEMO_GYM_KILLS", "4"))
SESSIONS = [f"session-{n}" for n in range(3)]
SIZES = (4_000, 64_000)


class Server:
    """`gym capture serve` in a process of its own."""

    def __init__(self, upstream: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [GYM, "capture", "serve", "--upstream", upstream, "--dir", str(folder), "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self.origin = self._process.stdout.readline().split("ANTHROPIC_BASE_URL=")[1].strip()

    def end(self, number: int) -> None:
        self._process.send_signal(number)
        self._process.communicate(timeout=20)


class Clients:
    """Threads that call one server, over connections that they keep, until it is gone."""

    def __init__(self, origin: str, name: str, seed: int) -> None:
        self.whole: list[str] = []
        """Tags of the requests whose answers came whole."""
        self._origin, self._name = origin, name
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number, random.Random(seed + number)))  # noqa: S311
            for number in range(4)
        ]
        for thread in self._threads:
            thread.start()

    def wait_for(self, answers: int) -> None:
        deadline = time.monotonic() + 30
        while len(self.whole) < answers and time.monotonic() < deadline:
            time.sleep(0.002)

    def stop(self) -> None:
        self._stop.set()
        self.join()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _run(self, client: int, rng: random.Random) -> None:
        address = urlsplit(self._origin).netloc
        number = 0
        while not self._stop.is_set():
            connection = http.client.HTTPConnection(address, timeout=20)
            try:
                while not self._stop.is_set():
                    number += 1
                    self._call(connection, f"{self._name}-{client}-{number}", rng)
            except ConnectionRefusedError:
                return
            except (OSError, http.client.HTTPException):
                continue  # the server was killed under this call
            finally:
                connection.close()

    def _call(self, connection: http.client.HTTPConnection, tag: str, rng: random.Random) -> None:
        text = f"{tag} " + "x" * rng.choice(SIZES)
        streamed = rng.random() < 0.5
        messages = [{"role": "user", "content": text}]
        asked = {"model": "m", "messages": messages, "stream": streamed}
        headers = {"x-claude-code-session-id": rng.choice(SESSIONS)}
        connection.request("POST", "/v1/chat/completions", json.dumps(asked), headers)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status == 200 and (not streamed or b"[DONE]" in body):
            self.whole.append(tag)


@contextmanager
def _living(upstream: str, folder: Path) -> Generator[Clients]:
    server = Server(upstream, folder)
    clients = Clients(server.origin, "live", 1_000_000)
    try:
        yield clients
    finally:
        clients.stop()
        server.end(signal.SIGINT)


def test_servers_killed_under_load_lose_no_row_of_an_answer_that_a_client_has(
    tmp_path: Path,
) -> None:
    folder, rng = tmp_path / "calls", random.Random(11)  # noqa: S311
    whole: list[str] = []
    with provider_process() as origin, _living(f"{origin}/v1", folder) as live:
        for kill in range(KILLS):
            server = Server(f"{origin}/v1", folder)
            clients = Clients(server.origin, f"kill{kill}", kill * 100)
            clients.wait_for(rng.randint(5, 60))
            time.sleep(rng.random() * 0.02)
            server.end(signal.SIGKILL)
            clients.join()
            whole += clients.whole
        live.wait_for(20)
    whole += live.whole
    store = CaptureStore(folder)
    items = [item for session in SESSIONS for item in store.read(session)]

    rows = [item for item in items if not isinstance(item, Damaged)]
    damaged = [item for item in items if isinstance(item, Damaged)]
    tags = [row["request"]["messages"][0]["content"].partition(" ")[0] for row in rows]
    assert len(whole) > 20 + 5 * KILLS
    assert len(tags) == len(set(tags))
    assert set(whole) <= set(tags)
    assert len(damaged) <= KILLS
    for line in damaged:
        content = line.path.read_bytes()[line.offset : line.offset + line.length]
        assert content.count(b'{"model_call_id"') <= 1
    assert [s for s in SESSIONS if store.is_pending(s)] == []
