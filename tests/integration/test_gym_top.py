"""`gym top` against a real head server: finds the run, shows it once or live, ends with it."""

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nemo_gym.cli.top import _look
from nemo_gym.runtime.head import HeadApp, ServerEntry
from nemo_gym.runtime.registry import LiveRun, RunEntry, live_runs, process_start
from nemo_gym.telemetry import live
from nemo_gym.telemetry.figures import snapshot, to_json
from nemo_gym.telemetry.live import live_counts, server_counts
from support.serving import serving

GYM = [sys.executable, "-c", "from nemo_gym.cli.main import main; main()"]
RUN_ID = "1784846522-c3c0e1"


@asynccontextmanager
async def live_run(
    monkeypatch: pytest.MonkeyPatch, state: Path, asked: asyncio.Event | None = None
) -> AsyncIterator[dict[str, str]]:
    """Serve figures of this process as those of a live run; return the environment to find it.

    `asked` is set once somebody has asked for them.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    live._reset()  # other tests of this process have driven rollouts too
    rollouts = live_counts().rollouts
    rollouts.planned, rollouts.offered, rollouts.finished = 200, 60, 42
    server_counts("mcqa_top").in_flight = 7

    async def figures() -> tuple[str, bytes]:
        if asked is not None:
            asked.set()
        return "application/json", to_json([snapshot("driver")])

    entry = ServerEntry("mcqa_top", "resources_servers", "mcqa", ())
    head = HeadApp(RUN_ID, {}, (entry,), figures=figures)
    pid = os.getpid()
    async with serving(head) as url:
        run = LiveRun(
            run_id=RUN_ID,
            kind="eval run",
            pid=pid,
            process_started=process_start(pid) or 0.0,
            started_at=time.time() - 5,
            head_url=url,
            cwd="/somewhere",
            log_dir=str(state),
            output="results/mcqa.jsonl",
        )
        with RunEntry(run):
            yield {**os.environ, "XDG_STATE_HOME": str(state)}


async def run_gym(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [*GYM, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


async def test_it_finds_the_live_run_by_itself_and_prints_one_look_into_a_pipe(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with live_run(monkeypatch, tmp_path) as environment:
        done = await run_gym(environment, "top", "--interval", "0.2")

    assert done.returncode == 0, done.stderr
    assert f"eval run {RUN_ID}" in done.stdout
    assert "42/200" in done.stdout
    assert re.search(r"^mcqa_top +7 ", done.stdout, re.MULTILINE)
    assert "telemetry.metrics.enabled=true" in done.stdout


async def test_one_look_at_an_evaluation_shows_what_it_did_since_it_began(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with live_run(monkeypatch, tmp_path) as environment:
        done = await run_gym(environment, "top", "--once")

    rate = re.search(r"42/200 +21% +([\d.,]+)/s  eta (\S+)", done.stdout)
    assert rate is not None
    assert float(rate[1].replace(",", "")) > 0
    assert rate[2] != "-"


async def test_one_look_beside_older_servers_shows_what_they_do_now_not_what_they_ever_did(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with live_run(monkeypatch, tmp_path) as environment:
        [servers] = live_runs()
        live_counts().model_calls = 10_000
        live_counts().rollouts.began_at = time.perf_counter() - 4.2
        driver = replace(servers, run_id="driver", extra={"figures_url": servers.head_url})
        with RunEntry(driver):
            done = await run_gym(environment, "top", "driver", "--json", "--interval", "0.2")

    told = json.loads(done.stdout)
    assert told["model_rate"] == 0.0
    assert 0.5 < told["rollouts"]["rate"] <= 10.0  # 42 ended since the run began


async def test_one_look_at_an_evaluation_that_ends_meanwhile_shows_how_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = asyncio.Event()
    async with live_run(monkeypatch, tmp_path, asked) as environment:
        [servers] = live_runs()
        driver = replace(servers, run_id="driver", extra={"figures_url": servers.head_url})
        with RunEntry(driver):
            look = asyncio.create_task(run_gym(environment, "top", "driver", "--interval", "1"))
            await asked.wait()
        done = await look

    assert done.returncode == 0, done.stderr
    assert "42/200" in done.stdout


async def test_it_prints_json_for_machines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with live_run(monkeypatch, tmp_path) as environment:
        done = await run_gym(environment, "top", RUN_ID, "--json", "--interval", "0.2")

    told = json.loads(done.stdout)
    assert told["run_id"] == RUN_ID
    assert told["rollouts"]["counts"]["finished"] == 42
    assert told["diagnosis"]["bottleneck"]


async def test_without_a_live_run_it_says_so(tmp_path: Path) -> None:
    done = await run_gym({**os.environ, "XDG_STATE_HOME": str(tmp_path)}, "top")

    assert done.returncode == 2
    assert "no run is alive" in done.stderr


async def test_a_run_that_is_not_there_is_named_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with live_run(monkeypatch, tmp_path) as environment:
        done = await run_gym(environment, "top", "nope")

    assert done.returncode == 2
    assert RUN_ID in done.stderr


async def test_a_driver_that_has_ended_is_over_though_its_servers_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with live_run(monkeypatch, tmp_path):
        [servers] = live_runs()
        driver = replace(servers, run_id="driver", extra={"figures_url": servers.head_url})
        with RunEntry(driver):
            during = await _look(driver)
        afterwards = await _look(driver)
        of_the_servers = await _look(servers)

    assert during is not None
    assert during.figures
    assert afterwards is None
    assert of_the_servers is not None
    assert of_the_servers.figures


@pytest.mark.parametrize("columns", [80, 40])
async def test_a_terminal_of_twenty_four_lines_shows_it_live_until_q(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, columns: int
) -> None:
    async with live_run(monkeypatch, tmp_path) as environment:
        shown, code = await asyncio.to_thread(
            in_terminal, environment, b"bottleneck|stands out", columns=columns
        )

    assert code == 0
    assert b"42/200" in shown
    assert b"mcqa_top" in shown
    assert b"q quits" in shown


async def test_keys_pressed_before_q_do_not_keep_it_from_quitting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with live_run(monkeypatch, tmp_path) as environment:
        _, code = await asyncio.to_thread(
            in_terminal, environment, b"q quits", keys=b"\xff\xc3jQ", interval="0.1"
        )

    assert code == 0


async def test_a_terminal_that_cannot_move_its_cursor_gets_plain_looks_one_below_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with live_run(monkeypatch, tmp_path) as environment:
        shown, code = await asyncio.to_thread(
            in_terminal, environment, b"(?s)q quits.*q quits", term="dumb"
        )

    assert code == 0
    assert b"\x1b" not in shown
    assert shown.count(b"42/200") >= 2


@pytest.mark.parametrize("interval", ["0", "-1", "0.05", "nan", "inf"])
async def test_an_interval_that_is_none_is_refused(tmp_path: Path, interval: str) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}

    done = await run_gym(environment, "top", "--interval", interval)

    assert done.returncode == 2
    assert "--interval" in done.stderr


async def test_on_a_terminal_it_waits_for_a_run_that_is_still_starting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    waiting, said = asyncio.Event(), asyncio.get_running_loop()
    watching = asyncio.create_task(
        asyncio.to_thread(
            in_terminal,
            environment,
            b"bottleneck|stands out",
            lambda: said.call_soon_threadsafe(waiting.set),
        )
    )
    await asyncio.wait_for(waiting.wait(), 20)
    async with live_run(monkeypatch, tmp_path):
        shown, code = await watching

    assert b"waiting 20 s for one that is starting" in shown
    assert b"42/200" in shown
    assert code == 0


def in_terminal(
    environment: dict[str, str],
    until: bytes,
    waits: Callable[[], object] = lambda: None,
    *,
    columns: int = 80,
    term: str = "xterm-256color",
    interval: str = "0.2",
    keys: bytes = b"q",
) -> tuple[bytes, int]:
    """Run `gym top` on a terminal until it shows `until`, then press q; `waits` hears of a wait."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [*GYM, "top", "--interval", interval],
        env={**environment, "TERM": term, "COLUMNS": str(columns), "LINES": "24"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    shown, pressed = b"", False
    deadline = time.monotonic() + 20
    try:
        while process.poll() is None and time.monotonic() < deadline:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    shown += os.read(master, 65536)
                except OSError:
                    break
            if b"waiting" in shown:
                waits()
            if not pressed and re.search(until, shown):
                os.write(master, keys)
                pressed = True
        return shown, process.wait(5)
    finally:
        process.kill()
        os.close(master)
