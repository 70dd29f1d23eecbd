"""What capturing model calls costs: CPU seconds of the server per 1,000 calls, with and without.

    python bench/capture.py [--quick] [--rounds 5] [--unpinned] [--only REGEX] [--directory DIR]
                            [--peers] [--litellm PROGRAM] [--json FILE]

`gym capture serve` as a process of its own, between a zero-delay provider and a load generator
(one process each, loopback), beside the same stack without a store and three floors: the store on
tmpfs, a bare fdatasync a batch, and open-lock-write-fsync-close a call. Requests of 2, 40, 62 and
85 KB, answers of 1.6 KB; JSON, and streams of 200 chunks that come one by one. The servers of a
table take turns within a round; medians over the rounds are shown, and differences are taken
within a round before the median.

The server has a core for itself and the others share the rest, unless `--unpinned` lets the system
place them: a process that the kernel moves about pays for cold caches.

CPU is what the kernel accounts to the threads of the server; `best` is the round with the least,
which a busy neighbour (shared caches, the other half of a core) disturbed least. Wall times
(calls/s, p50, p99) tell how busy the machine is with other things just as well. A paced provider
takes from half to one and a half times its time, and that time is not counted. `one sync` is a
fdatasync of 4 KB in the capture directory between the runs; `beside this load` it is one of 16 KB,
by another process, while calls are captured, once a round. `--peers` adds nginx, `--litellm`
LiteLLM's proxy.
"""

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path

import uvloop
from forward import Running, nginx_before, started
from load import make_calls, request_bytes

HERE = Path(__file__).resolve().parent
CHAT = "/v1/chat/completions"
ROLLOUTS = 64
EVENTS = 200
TEXT = "tokens of 6." * 107
CHUNKS_PER_S = 5000
"""Chunks come slower than servers can pass them on, else they merge and are counted as many."""
CHUNKS_PER_S_OF_MANY = 10_000
MANY = 1024
WARM_CALLS = 64
LITELLM_KEY = "sk-bench"


@dataclass(frozen=True)
class Scenario:
    """One table."""

    kb: int
    in_flight: int
    calls: int
    stream: bool = False
    delay_s: float = 0.0
    """What the provider waits before it answers."""

    def title(self) -> str:
        kind = f"SSE, {EVENTS} chunks" if self.stream else "JSON"
        paced = f", provider takes {self.delay_s * 1000:.0f} ms" if self.delay_s else ""
        return f"{self.kb} KB {kind}, {self.in_flight} in flight{paced}"

    def body(self) -> bytes:
        """Return a request as agents send them: prose with quotes, line ends and other letters."""
        line = (
            'He said: "Schön, run `ls -l` in /tmp/work".\n\tThen look at what it printed — café.\n'
        )
        turns, size = [], 0
        while size < self.kb * 1024 - 150:
            text = line * min(12, max(1, (self.kb * 1024 - size) // 120))
            turns.append({"role": ("user", "assistant")[len(turns) % 2], "content": text})
            size += len(json.dumps(turns[-1], ensure_ascii=False).encode())
        request = {"model": "gpt-bench", "messages": turns, "temperature": 0, "stream": self.stream}
        return json.dumps(request, separators=(",", ":"), ensure_ascii=False).encode()

    def behaviour(self) -> dict[str, object]:
        if not self.stream:
            return {"answer": {"text": TEXT}, "delay_s": self.delay_s, "delay_spread": 0.5}
        rate = CHUNKS_PER_S_OF_MANY if self.in_flight >= MANY else CHUNKS_PER_S
        pause = max(0.001, self.in_flight / rate)
        return {"answer": {"text": TEXT, "deltas": EVENTS}, "piece_delay_s": pause}


@dataclass(frozen=True)
class Figures:
    """One run of one server, or medians. CPU: seconds per 1,000 calls, of streams µs per chunk."""

    cpu: float
    best: float
    """Of several runs the least CPU."""
    per_s: float
    p50_ms: float
    p99_ms: float
    failed: float


def scenarios(*, quick: bool) -> list[Scenario]:
    if quick:
        return [
            Scenario(2, 64, 4000),
            Scenario(62, 64, 1500),
            Scenario(2, 64, 2500, delay_s=0.05),
            Scenario(2, 1024, 4000),
            Scenario(2, 64, 64, stream=True),
        ]
    calls = {2: 4000, 40: 2000, 85: 1500}
    json_calls = [Scenario(kb, n, max(400 if n == 1 else calls[kb], n * 2))
                  for n in (1, 64, 1024) for kb in (2, 40, 85)]  # fmt: skip
    streams = [
        Scenario(kb, n, max(24, n), stream=True) for n in (1, 64, 1024) for kb in (2, 40, 85)
    ]
    paced = [Scenario(kb, 64, calls, delay_s=delay_s)
             for delay_s, calls in ((0.05, 6000), (0.25, 4000)) for kb in (2, 40)]  # fmt: skip
    return [*json_calls, Scenario(62, 64, 2000), *paced, *streams]


def cpu_s(server: Running) -> float:
    """Seconds on a CPU so far of all threads of the server and its children."""
    pids = [server.process.pid, *(c.pid for c in server.process.children(recursive=True))]
    stats = (path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(path.read_text().split()[0]) for path in stats) / 1e9


async def load(origin: str, prefixed: bool, scenario: Scenario, calls: int) -> Figures:
    """Make the calls, so many at a time; the CPU is left at 0."""
    headers = (f"authorization: Bearer {LITELLM_KEY}", "content-type: application/json")
    prefixes = [f"/ng-rollout/{n}-0" for n in range(ROLLOUTS)] if prefixed else [""]
    body = scenario.body()
    requests = [request_bytes(prefix + CHAT, body, *headers) for prefix in prefixes]
    began = time.perf_counter()
    made = await make_calls(origin, requests, calls, scenario.in_flight, scenario.delay_s)
    took = time.perf_counter() - began
    waits = sorted(made.waits_ms)
    p50, p99 = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
    return Figures(0.0, 0.0, calls / took, p50, p99, made.failed + calls - len(waits))


def run(server: Running, prefixed: bool, scenario: Scenario, calls: int) -> Figures:
    uvloop.run(load(server.origin, prefixed, scenario, min(calls, WARM_CALLS)))
    before = cpu_s(server)
    found = uvloop.run(load(server.origin, prefixed, scenario, calls))
    used = (cpu_s(server) - before) / calls
    cpu = used * 1e6 / EVENTS if scenario.stream else used * 1000
    return replace(found, cpu=cpu, best=cpu)


@contextmanager
def capture_serve(upstream: str, directory: Path) -> Generator[Running]:
    """Run the real command."""
    import psutil  # noqa: PLC0415

    command = [sys.executable, "-m", "nemo_gym", "capture", "serve", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--upstream", upstream, "--dir", str(directory)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE.parent / "src")},
    )
    assert process.stdout is not None
    try:
        process.stdout.readline()
        origin = process.stdout.readline().split("ANTHROPIC_BASE_URL=")[1].strip()
        yield Running(origin, psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def litellm_before(origin: str, program: str) -> Generator[Running]:
    """Run LiteLLM's proxy, one worker, nothing logged."""
    import psutil  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        config = Path(folder, "config.yaml")
        params = {"model": "openai/m", "api_base": f"{origin}/v1", "api_key": "k"}
        models = [{"model_name": "gpt-bench", "litellm_params": params}]
        settings = {"disable_spend_logs": True, "master_key": LITELLM_KEY}
        config.write_text(json.dumps({"model_list": models, "general_settings": settings}))
        process = subprocess.Popen(
            [program, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "LITELLM_LOG": "ERROR", "NO_PROXY": "127.0.0.1",
                 "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        )  # fmt: skip
        address = f"http://127.0.0.1:{port}"
        try:
            wait_until_healthy(f"{address}/health/liveliness")
            yield Running(address, psutil.Process(process.pid))
        finally:
            process.terminate()
            process.wait(30)


def wait_until_healthy(url: str, timeout_s: float = 120) -> None:
    end = time.monotonic() + timeout_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310
                return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


@dataclass(frozen=True)
class Contestant:
    server: Running
    prefixed: bool = True
    share: float = 1.0
    """Part of the calls that it is given, where it takes long."""


def place(*, server: bool, pinned: bool) -> None:
    """Say where what is started next runs, and this process: servers on the first core alone."""
    first, *others = sorted(ALL_CORES)
    if pinned and others:
        os.sched_setaffinity(0, {first} if server else set(others))


ALL_CORES = os.sched_getaffinity(0)


@contextmanager
def contestants(
    scenario: Scenario, upstream: str, directory: Path, options: argparse.Namespace
) -> Generator[dict[str, Contestant]]:
    """Start all servers of a table, each with a directory of its own."""
    with tempfile.TemporaryDirectory(dir=directory) as folder, ExitStack() as stack:
        place(server=True, pinned=not options.unpinned)
        found: dict[str, Contestant] = {}
        for kind in ("off", "sync per batch", "file per call"):
            own = Path(folder, kind.replace(" ", "-"))
            own.mkdir()
            program = str(HERE / "capture_servers.py")
            server = started(sys.executable, program, kind, upstream, str(own))
            found[kind] = Contestant(stack.enter_context(server))
        shm = stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        for name, where in (("capture", Path(folder, "capture")), ("tmpfs", Path(shm))):
            found[name] = Contestant(stack.enter_context(capture_serve(upstream, where)))
        if options.peers and shutil.which("nginx"):
            nginx = stack.enter_context(nginx_before(upstream))
            found["nginx proxy_pass"] = Contestant(nginx, prefixed=False)
        if options.litellm and not scenario.stream and scenario.in_flight <= 64:
            litellm = stack.enter_context(litellm_before(upstream, options.litellm))
            found["LiteLLM proxy"] = Contestant(litellm, prefixed=False, share=0.05)
        place(server=False, pinned=not options.unpinned)
        order = ("off", "capture", "tmpfs", "sync per batch", "file per call", *found)
        yield {name: found[name] for name in dict.fromkeys(order)}


def sync_ms(directory: Path, times: int = 100) -> float:
    """Median of one fdatasync of 4 KB in a file whose blocks are there already, in ms."""
    took = []
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(bytes(times * 4096))
        os.fsync(file.fileno())
        for number in range(times):
            began = time.perf_counter()
            os.pwrite(file.fileno(), b"x" * 4096, number * 4096)
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


def syncs_beside(directory: Path, work: Callable[[], object]) -> dict[str, float]:
    """Return what syncs of another process take while `work` goes on, in ms: p50 and p99."""
    program = [sys.executable, str(HERE / "sync_times.py"), str(directory)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        work()
        process.terminate()
        return json.loads(process.stdout.readline())


def measure(
    scenario: Scenario, provider: Running, directory: Path, options: argparse.Namespace
) -> dict[str, object]:
    behave(provider, scenario.behaviour())
    rounds: list[dict[str, Figures]] = []
    syncs: list[float] = []
    beside: list[dict[str, float]] = []
    with contestants(scenario, provider.origin, directory, options) as servers:
        for _ in range(options.rounds):
            syncs.append(sync_ms(directory))
            rounds.append(
                {
                    name: run(
                        c.server, c.prefixed, scenario, max(20, int(scenario.calls * c.share))
                    )
                    for name, c in servers.items()
                }
            )
            beside.append(syncs_beside(directory, partial(run_captured, servers, scenario)))
    table = {name: medians([r[name] for r in rounds]) for name in rounds[0]}
    added = {
        field: statistics.median(
            getattr(r["capture"], field) - getattr(r["off"], field) for r in rounds
        )
        for field in ("cpu", "p50_ms", "p99_ms")
    }
    added["best"] = table["capture"].best - table["off"].best
    return {
        "title": scenario.title(),
        "stream": scenario.stream,
        "servers": {name: asdict(figures) for name, figures in table.items()},
        "capture adds": added,
        "sync_ms": statistics.median(syncs),
        "sync_ms beside capture": {
            name: statistics.median(each[name] for each in beside) for name in beside[0]
        },
    }


def run_captured(servers: dict[str, Contestant], scenario: Scenario) -> None:
    run(servers["capture"].server, True, scenario, scenario.calls)


def medians(runs: list[Figures]) -> Figures:
    columns = {f.name: [getattr(run, f.name) for run in runs] for f in fields(Figures)}
    summed = {"best": min(columns.pop("best")), "failed": sum(columns.pop("failed"))}
    return Figures(**{name: statistics.median(c) for name, c in columns.items()}, **summed)


def behave(provider: Running, behaviour: dict[str, object]) -> None:
    body = json.dumps(behaviour).encode()
    request = urllib.request.Request(f"{provider.origin}/_default", data=body)  # noqa: S310
    urllib.request.urlopen(request).close()  # noqa: S310


def show(found: dict[str, object]) -> None:
    cpu = "CPU µs/chunk" if found["stream"] else "CPU s/1,000"
    titles = (cpu, "best", "per CPU s", "per s", "p50 ms", "p99 ms", "failed")
    print(f"\n{found['title']}\n  {'':18}" + "".join(f"{title:>13}" for title in titles))
    for name, f in found["servers"].items():  # type: ignore[attr-defined]
        per_cpu_s = (1e6 if found["stream"] else 1000) / f["cpu"]
        print(
            f"  {name:18}{f['cpu']:13.3f}{f['best']:13.3f}{per_cpu_s:13.0f}{f['per_s']:13.0f}"
            f"{f['p50_ms']:13.2f}{f['p99_ms']:13.2f}{f['failed']:13.0f}"
        )
    added: dict[str, float] = found["capture adds"]  # type: ignore[assignment]
    beside: dict[str, float] = found["sync_ms beside capture"]  # type: ignore[assignment]
    print(
        f"  capture adds {added['cpu']:.3f} {cpu}, at best {added['best']:.3f};"
        f" p50 {added['p50_ms']:+.2f} ms, p99 {added['p99_ms']:+.2f} ms;"
        f" one sync {found['sync_ms']:.2f} ms, beside this load {beside['p50']:.2f} ms,"
        f" p99 {beside['p99']:.2f}: added {added['p50_ms'] / beside['p50']:.1f} syncs,"
        f" p99 {added['p99_ms'] / beside['p99']:.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="five tables, one round: a minute")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--unpinned", action="store_true", help="the system places processes")
    parser.add_argument("--only", metavar="REGEX", help="tables whose title matches")
    parser.add_argument("--directory", type=Path, default=Path(), help="on the disk to measure")
    parser.add_argument("--peers", action="store_true", help="nginx beside, where installed")
    parser.add_argument("--litellm", metavar="PROGRAM", help="path of LiteLLM's `litellm`")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    tables = []
    place(server=False, pinned=not options.unpinned)
    with started(sys.executable, "-m", "support.provider") as provider:
        for scenario in scenarios(quick=options.quick):
            if options.only and not re.search(options.only, scenario.title()):
                continue
            tables.append(measure(scenario, provider, options.directory, options))
            show(tables[-1])
    if options.json:
        options.json.write_text(json.dumps(tables, indent=1))


if __name__ == "__main__":
    main()
