"""`gym capture` as a user types it, on directories that servers really wrote."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path

import anthropic
import openai
import pytest

from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import parse_rollout_id
from support.provider import Provider, serve_provider

GYM = str(Path(sys.executable).parent / "gym")


def _gym(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [GYM, "capture", *arguments],
        cwd=cwd,
        env={**os.environ, "XDG_STATE_HOME": str(cwd / "state")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
async def provider() -> AsyncGenerator[Provider]:
    async with serve_provider() as served:
        yield served


@contextmanager
def _serving(upstream: str, folder: Path) -> Generator[str]:
    """Run `gym capture serve`; yields its origin."""
    process = subprocess.Popen(
        [GYM, "capture", "serve", "--upstream", upstream, "--dir", str(folder), "--port", "0",
         "--rollout-id", "all-others"],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield process.stdout.readline().split("ANTHROPIC_BASE_URL=")[1].strip()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
    assert process.returncode == 0


async def _call_with_sdks(origin: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{origin}/v1", api_key="sk-own-secret") as client:
        await client.responses.create(model="m", input="What is 2+2?")
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Hi"}], stream=True
        )
        assert [chunk async for chunk in stream]
    headers = {"x-claude-code-session-id": "session-7"}
    async with anthropic.AsyncAnthropic(
        base_url=origin, api_key="sk-own-secret", default_headers=headers
    ) as messages:
        await messages.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]
        )


@pytest.fixture
async def captured(provider: Provider, tmp_path: Path) -> Path:
    """A directory with the calls of two SDKs, captured by `gym capture serve`."""
    folder = tmp_path / "calls"
    with _serving(provider.base_url, folder) as origin:
        await _call_with_sdks(origin)
    return folder


async def test_serve_captures_any_agents_calls_under_its_session_or_the_process(
    captured: Path, provider: Provider
) -> None:
    files = _visible(captured)
    names, stored = sorted(files), "".join(files.values())

    assert names == ["all-others.capture.jsonl", "session-7.capture.jsonl"]
    assert "sk-own-secret" not in stored
    assert [r.key for r in provider.requests] == ["sk-own-secret"] * 3


def _visible(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in folder.iterdir() if not p.name.startswith(".")}


async def test_ls_counts_calls_and_tokens(captured: Path) -> None:
    listed = _gym("ls", "--json", "--dir", str(captured), cwd=captured.parent)
    rows = {r["rollout_id"]: r for r in map(json.loads, listed.stdout.splitlines())}

    assert listed.returncode == 0
    assert rows["all-others"]["calls"] == 2
    assert rows["all-others"]["tokens_in"] == 24
    assert rows["session-7"]["tokens_out"] == 7
    assert "session-7" in _gym("ls", "--dir", str(captured), cwd=captured.parent).stdout


async def test_show_reads_like_a_conversation(captured: Path) -> None:
    shown = _gym("show", "all-others", "--dir", str(captured), cwd=captured.parent).stdout
    records = json.loads(
        _gym("show", "all-others", "--json", "--dir", str(captured), cwd=captured.parent).stdout
    )
    raw = _gym("show", "all-others", "--raw", "--dir", str(captured), cwd=captured.parent).stdout

    assert "user: What is 2+2?" in shown
    assert "assistant: The answer is" in shown
    assert [r["dialect"] for r in records] == ["responses", "chat"]
    assert raw == (captured / "all-others.capture.jsonl").read_text()


async def test_show_of_an_unknown_rollout_is_a_users_mistake(captured: Path) -> None:
    shown = _gym("show", "9-9", "--dir", str(captured), cwd=captured.parent)

    assert shown.returncode == 2
    assert "gym capture ls" in shown.stderr


async def test_tail_prints_the_last_calls(captured: Path) -> None:
    printed = _gym("tail", "-n", "1", "--dir", str(captured), cwd=captured.parent).stdout

    assert printed.startswith("session-7  ")
    assert printed.count("\n") == 1
    assert (
        _gym("tail", "--json", "-n", "1", "--dir", str(captured), cwd=captured.parent).stdout
        == (captured / "session-7.capture.jsonl").read_text().splitlines(keepends=True)[-1]
    )


def test_tail_follows_calls_as_they_come_whole_until_interrupted(tmp_path: Path) -> None:
    def row(text: str) -> str:
        content = [{"type": "text", "text": text}]
        return json.dumps({"dialect": "messages", "response": {"content": content}}) + "\n"

    old, new = (tmp_path / f"{name}.capture.jsonl" for name in ("0-0", "1-0"))
    old.write_text(row("first"))
    process = subprocess.Popen(
        [GYM, "capture", "tail", "-f", "--dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said = [process.stdout.readline()]
    with old.open("a") as file:
        file.write(row("second")[:20])
        file.flush()
        new.write_text(row("third"))
        said.append(process.stdout.readline())
        file.write(row("second")[20:])
    said.append(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=10)

    assert [(line.split()[0], line.split()[-1]) for line in said] == [
        ("0-0", "first"),
        ("1-0", "third"),
        ("0-0", "second"),
    ]
    assert (rest, "Traceback" in err) == ("", False)
    assert process.returncode == 130


def test_tail_names_a_file_that_cannot_be_read_once_whenever_it_comes(tmp_path: Path) -> None:
    first, second = (tmp_path / f"{name}.capture.jsonl" for name in ("0-0", "1-0"))
    first.mkdir()
    process = subprocess.Popen(
        [GYM, "capture", "tail", "-f", "--dir", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        said = [process.stderr.readline()]
        second.mkdir()
        said.append(process.stderr.readline())
    finally:
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=10)

    assert said == [f"{path.name} cannot be read: Is a directory\n" for path in (first, second)]
    assert "cannot be read" not in rest


async def test_repair_moves_damage_aside_and_loses_no_good_row(captured: Path) -> None:
    path = captured / "all-others.capture.jsonl"
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b'{"half a row\n' + second + b'{"torn by a kill')
    found = _gym("verify", "--dir", str(captured), cwd=captured.parent)
    repaired = _gym("repair", "--dir", str(captured), cwd=captured.parent)
    after = _gym("verify", "--dir", str(captured), cwd=captured.parent)

    listed = _gym("ls", "--dir", str(captured), cwd=captured.parent)
    shown = _gym("show", "all-others", "--dir", str(captured), cwd=captured.parent)

    assert (found.returncode, repaired.returncode, after.returncode) == (1, 0, 1)
    assert found.stdout.count("damaged:") == 2
    aside_name = ".nemo_gym/damaged/all-others.capture.jsonl.0"
    told = f"2 damaged lines (28 bytes) of all-others.capture.jsonl to {aside_name}"
    for said in (after, shown):
        assert f"incomplete: a row may be missing: a repair moved {told}" in said.stdout
    assert "incomplete" in listed.stdout
    assert found.stdout.endswith(": 2 findings\n")
    assert path.read_bytes() == first + second
    (aside,) = (captured / ".nemo_gym" / "damaged").iterdir()
    assert aside.read_bytes() == b'{"half a row\n{"torn by a kill\n'


def test_verify_finds_calls_under_way_in_rollouts_that_have_no_rows_yet(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    claim = store.claim(parse_rollout_id("0-0"))
    during = _gym("verify", "--dir", str(tmp_path), "--json", cwd=tmp_path)
    claim.release()
    after = _gym("verify", "--dir", str(tmp_path), cwd=tmp_path)
    store.close()

    assert during.returncode == 1
    (finding,) = json.loads(during.stdout)["findings"]
    assert finding["kind"] == "pending"
    assert finding["rollout_id"] is None
    assert after.returncode == 0


def test_without_a_directory_the_command_says_how_to_name_one(tmp_path: Path) -> None:
    listed = _gym("ls", cwd=tmp_path)

    assert listed.returncode == 2
    assert "--dir" in listed.stderr


def test_the_directory_is_found_in_env_yaml(tmp_path: Path) -> None:
    (tmp_path / "calls").mkdir()
    (tmp_path / "env.yaml").write_text(f"model_call_capture_dir: {tmp_path}/calls\n")

    assert "0 rollouts" in _gym("ls", cwd=tmp_path).stdout


def test_ls_holds_one_file_at_a_time(tmp_path: Path) -> None:
    row = json.dumps({"model_call_id": "x", "dialect": "chat", "request": {"pad": "y" * 400_000}})
    for folder, count in (("few", 2), ("many", 200)):
        (tmp_path / folder).mkdir()
        for number in range(count):
            (tmp_path / folder / f"{number}-0.capture.jsonl").write_text(row + "\n")
    few, many = (_peak_kb_of_ls(tmp_path / folder) for folder in ("few", "many"))

    assert many - few < 20_000


def _peak_kb_of_ls(folder: Path) -> int:
    script = (
        "import sys; from nemo_gym.cli.main import main\n"
        "try: main(['capture', 'ls', '--json', '--dir', sys.argv[1]])\n"
        "finally: print(open('/proc/self/status').read(), file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=False
    )
    assert ran.stdout.count("\n") == len(list(folder.iterdir()))
    return int(re.findall(r"VmHWM:\s+(\d+) kB", ran.stderr)[0])


def test_a_port_that_is_taken_is_told_with_the_option_that_names_another(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = ("serve", "--upstream", "http://127.0.0.1:9", "--dir", "x", "--port", port)
        ended = _gym(*arguments, cwd=tmp_path)

    assert ended.returncode == 2
    assert "--port 0 takes a free one" in ended.stderr
