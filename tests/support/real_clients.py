"""Claude Code and Codex as people run them, shut in: nothing but loopback is there for them.

`outside_world` is all they could reach: a provider, and a proxy that refuses every connection and
writes down who was asked for. The pinned programs come from `scripts/ci-tools`.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.provider import (
    Answer,
    Behaviour,
    Provider,
    ReceivedRequest,
    ToolCall,
    serve_provider,
)

__all__ = [
    "CLAUDE",
    "CLIENTS",
    "CLIENT_KEY",
    "CODEX",
    "DONE",
    "Client",
    "OutsideWorld",
    "Ran",
    "capture_serve",
    "outside_world",
    "writes_a_file",
]

CLIENT_KEY = "sk-ant-the-clients-own-key-3141592653"
DONE = "The file is written."
_PROGRAMS = Path(__file__).parent.parent / "node" / "node_modules" / ".bin"


@dataclass(frozen=True, slots=True)
class Ran:
    """How a client ended."""

    code: int
    out: str
    session: str | None
    """What the client itself calls its session; None when it did not say."""


@dataclass(slots=True)
class OutsideWorld:
    provider: Provider
    proxy: str = ""
    contacted: list[str] = field(default_factory=list)
    """First lines of what was sent to the proxy."""


@dataclass(frozen=True, slots=True)
class Client:
    """One program. Everything it is given is fresh: home, settings, working directory."""

    name: str
    dialect: str
    model_type: str
    base_path: str
    """What its base URL has after the origin, or after the rollout prefix."""
    tool: Callable[[Path, str], ToolCall]
    """The call of its own tool that writes a text to a path."""
    settle: Callable[[Path, str], dict[str, str]]
    """Writes its settings into a home, for a base URL; gives its part of the environment."""
    arguments: tuple[str, ...]
    session_key: str
    """Under which its JSON output names the session."""

    @property
    def program(self) -> Path:
        return _PROGRAMS / self.name

    def runs_here(self) -> bool:
        """Say whether it is installed, and what it is a script for."""
        if not self.program.exists():
            return False
        with self.program.open("rb") as file:
            is_script = file.read(2) == b"#!"
        return not is_script or shutil.which("node") is not None

    def start(self, url: str, folder: Path, world: OutsideWorld) -> "subprocess.Popen[str]":
        """Start it in `folder`/work; `url` is an origin, with or without a rollout prefix."""
        home, work = folder / "home", folder / "work"
        for new in (home, work):
            new.mkdir(exist_ok=True)
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "HTTPS_PROXY": world.proxy,
            "HTTP_PROXY": world.proxy,
            "NO_PROXY": "127.0.0.1",
        }
        return subprocess.Popen(
            [str(self.program), *self.arguments, f"Write {work / 'hello.txt'}"],
            cwd=work,
            env=environ | self.settle(home, url + self.base_path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, url: str, folder: Path, world: OutsideWorld) -> Ran:
        """Run it to its end."""
        process = self.start(url, folder, world)
        try:
            out, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        return Ran(process.returncode, out + err, _session(out, self.session_key))


def _session(out: str, key: str) -> str | None:
    for line in out.splitlines():
        if line.startswith("{") and (found := json.loads(line).get(key)):
            return str(found)
    return None


def _settle_claude(home: Path, url: str) -> dict[str, str]:
    return {
        "CLAUDE_CONFIG_DIR": str(home),
        "ANTHROPIC_API_KEY": CLIENT_KEY,
        "ANTHROPIC_BASE_URL": url,
        # Without it the program refuses to skip permissions for root.
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


_CODEX_SETTINGS = """
model = "gpt-test"
model_provider = "gym"
check_for_update_on_startup = false
[model_providers.gym]
name = "gym"
base_url = "{url}"
env_key = "CLIENT_KEY"
wire_api = "responses"
[analytics]
enabled = false
[features]
plugins = false
apps = false
remote_models = false
"""


def _settle_codex(home: Path, url: str) -> dict[str, str]:
    (home / "config.toml").write_text(_CODEX_SETTINGS.format(url=url))
    return {"CODEX_HOME": str(home), "CLIENT_KEY": CLIENT_KEY}


def _write_tool(path: Path, text: str) -> ToolCall:
    arguments = json.dumps({"file_path": str(path), "content": text})
    return ToolCall("Write", arguments, "toolu_01")


def _shell_tool(path: Path, text: str) -> ToolCall:
    return ToolCall("exec_command", json.dumps({"cmd": f"printf '{text}' > {path}"}), "call_01")


CLAUDE = Client(
    name="claude",
    dialect="messages",
    model_type="anthropic_model",
    base_path="",
    tool=_write_tool,
    settle=_settle_claude,
    arguments=("--dangerously-skip-permissions", "--output-format", "json", "-p"),
    session_key="session_id",
)
CODEX = Client(
    name="codex",
    dialect="responses",
    model_type="openai_model",
    base_path="/v1",
    tool=_shell_tool,
    settle=_settle_codex,
    arguments=(
        *("exec", "--json", "--skip-git-repo-check"),
        "--dangerously-bypass-approvals-and-sandbox",
    ),
    session_key="thread_id",
)
CLIENTS = (CLAUDE, CODEX)


def writes_a_file(client: Client, path: Path, text: str) -> Callable[[ReceivedRequest], Behaviour]:
    """Return a model that has the client write `text` to `path`, then says that it is done."""
    call = client.tool(path, text)
    asks = Behaviour(answer=Answer(text="I write it.", tool_calls=(call,), tokens_in=100))
    ends = Behaviour(answer=Answer(text=DONE, tokens_in=200, cached=100))
    # The call's id comes back with its result.
    return lambda request: ends if call.call_id.encode() in request.body else asks


@contextmanager
def outside_world(provider: Provider | None = None) -> Generator[OutsideWorld]:
    """Run a provider and the refusing proxy in a loop of their own."""
    world = OutsideWorld(provider or Provider())
    loop, ready = asyncio.new_event_loop(), threading.Event()
    stop = asyncio.Event()

    async def serve() -> None:
        async with serve_provider(world.provider), _refusing_proxy(world):
            ready.set()
            await stop.wait()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(10)
    try:
        yield world
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


@asynccontextmanager
async def _refusing_proxy(world: OutsideWorld) -> AsyncGenerator[None]:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        world.contacted.append((await reader.readline()).decode("latin-1").strip())
        writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        world.proxy = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield


@contextmanager
def capture_serve(
    upstream: str, folder: Path, log: Path, *, key: str | None = None
) -> Generator[str]:
    """Run `gym capture serve`; gives its origin. All it says goes to `log`.

    `key` is the provider's, which the server holds; None: the client's own is passed on.
    """
    given = () if key is None else ("--key-env", "PROVIDER_KEY")
    with log.open("a") as said:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "nemo_gym", "capture", "serve", "--port", "0"),
                *("--upstream", upstream, "--dir", str(folder), "--rollout-id", "others"),
                *given,
            ],
            env=os.environ if key is None else {**os.environ, "PROVIDER_KEY": key},
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
        assert process.stdout is not None
        with process:
            lines = [process.stdout.readline() for _ in range(3)]
            said.write("".join(lines))
            said.flush()
            try:
                yield lines[1].split("ANTHROPIC_BASE_URL=")[1].strip()
            finally:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=10)
    assert process.returncode == 0
