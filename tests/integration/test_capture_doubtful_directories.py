"""`gym capture` says what it cannot tell, what is no row, and what nobody reads; once each."""

import json
import os
import pty
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from nemo_gym.capture.store import CaptureStore
from nemo_gym.errors import ConfigMistake
from nemo_gym.files.disk import Disk

GYM = str(Path(sys.executable).parent / "gym")
_SETPRIV = shutil.which("setpriv")
# The superuser reads every file, unless it is told not to.
_PLAIN = [] if os.geteuid() else [str(_SETPRIV), "--inh-caps=-all", "--bounding-set=-all"]

needs_permissions = pytest.mark.skipif(
    os.geteuid() == 0 and _SETPRIV is None, reason="the superuser may read everything"
)


def _row(name: str, said: str = "x") -> str:
    content = [{"type": "text", "text": said}]
    return json.dumps(
        {
            "model_call_id": name,
            "dialect": "messages",
            "request": {"messages": [{"role": "user", "content": "hello"}]},
            "response": {"content": content},
        }
    )


def _gym(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_PLAIN, GYM, "capture", *arguments, "--dir", str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    folder = tmp_path / "calls"
    store = CaptureStore(folder)
    store.open_for_writing()
    store.close()
    (folder / "0-0.capture.jsonl").write_text(_row("a") + "\n" + _row("b") + "\n")
    return folder


@needs_permissions
def test_what_cannot_be_told_is_said_to_be_unknown_and_said_once(calls: Path) -> None:
    calls.chmod(0o644)
    verified, listed = _gym("verify", "--json", folder=calls), _gym("ls", folder=calls)
    calls.chmod(0o755)

    findings = json.loads(verified.stdout)["findings"]
    assert (verified.returncode, verified.stderr) == (1, "")
    assert [f["kind"] for f in findings] == ["unreadable", "unknown"]
    assert "cannot be told" in findings[1]["detail"]
    assert "Permission denied" in findings[1]["detail"]
    assert "not known whether complete" in listed.stdout
    assert listed.stderr == ""


@needs_permissions
def test_damage_is_left_where_a_call_may_be_under_way_and_nobody_can_tell(calls: Path) -> None:
    path = calls / "0-0.capture.jsonl"
    with path.open("a") as file:
        file.write('{"half')
    (calls / ".nemo_gym" / "claims").chmod(0)
    before = path.read_bytes()
    repaired = _gym("repair", folder=calls)
    (calls / ".nemo_gym" / "claims").chmod(0o755)

    assert repaired.returncode == 1
    assert "cannot be told whether a call is under way" in repaired.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize("line", ["{}", '{"hello": 1}', "[]", "null", "5"])
def test_what_has_nothing_of_a_call_is_damage_everywhere(calls: Path, line: str) -> None:
    with (calls / "0-0.capture.jsonl").open("a") as file:
        file.write(line + "\n")
    listed = json.loads(_gym("ls", "--json", folder=calls).stdout)
    verified = json.loads(_gym("verify", "--json", folder=calls).stdout)
    shown = _gym("show", "0-0", folder=calls).stdout
    followed = _gym("tail", folder=calls).stdout

    assert (listed["calls"], listed["damaged"]) == (2, 1)
    assert [f["kind"] for f in verified["findings"]] == ["damaged"]
    assert shown.count("-- damaged line") == followed.count("damaged line") == 1


def test_what_nobody_reads_is_named(calls: Path) -> None:
    (calls / "weird name.capture.jsonl").write_text(_row("c") + "\n")
    (calls / "..capture.jsonl").write_text("")
    (calls / "gone.capture.jsonl").symlink_to("nowhere")
    (calls / "notes.txt").write_text("mine")
    verified = _gym("verify", folder=calls)

    assert verified.returncode == 1
    assert verified.stdout.splitlines()[:-1] == [
        "gone: unreadable: A link that leads nowhere",
        "stray: ..capture.jsonl: its name is no rollout id, so nobody reads it",
        "stray: weird name.capture.jsonl: its name is no rollout id, so nobody reads it",
    ]


def _on_a_terminal(folder: Path, **variables: str) -> str:
    ours, theirs = pty.openpty()
    kept = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "TERM"}}
    command = [GYM, "capture", "show", "0-0", "--dir", str(folder)]
    subprocess.run(command, stdout=theirs, env=kept | variables, timeout=60, check=True)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # how a terminal says that nobody is at the other end
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    return shown.decode()


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_a_terminal_is_coloured_unless_somebody_says_no(
    calls: Path, variables: dict[str, str], coloured: bool
) -> None:
    shown = _on_a_terminal(calls, **variables)

    assert ("\x1b" in shown) is coloured
    assert "(1 earlier message as in the calls before)" in shown


def test_a_word_where_a_number_belongs_is_told_in_words_of_users(calls: Path) -> None:
    refused = _gym("tail", "-n", "x", folder=calls)

    assert refused.returncode == 2
    assert "error: Invalid value for '-n': 'x' is not a whole number.\n" in refused.stderr
    assert "where: gym capture tail\n" in refused.stderr
    assert "mend:  'gym capture tail --help'" in refused.stderr


class _NoDescriptorLeft(Disk):
    def open_read_write(self, path: Path) -> int:
        raise OSError(24, "Too many open files", str(path))


def test_a_start_without_descriptors_names_the_limit_and_not_another_directory(
    tmp_path: Path,
) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    with pytest.raises(ConfigMistake) as refused:
        CaptureStore(tmp_path, disk=_NoDescriptorLeft()).open_for_writing()

    assert f"the limit of open files, which is {limit} here" in str(refused.value)
    assert "name a directory" not in str(refused.value)


def test_a_second_run_in_the_same_directory_is_followed_row_by_row(tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    folder.mkdir()
    paths = [folder / f"{number}-0.capture.jsonl" for number in range(5)]
    for path in paths:
        path.write_text(_row(f"{path.name}-1", "one") + "\n")
    store = CaptureStore(folder)
    process = subprocess.Popen(
        [GYM, "capture", "tail", "-f", "-n", "1", "--dir", str(folder)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    for path in paths:
        store.clear([path.name.partition(".")[0]])
        with path.open("a") as file:
            file.write(
                _row(f"{path.name}-2", "two") + "\n" + _row(f"{path.name}-3", "three") + "\n"
            )
    said = [process.stdout.readline().split() for _ in range(10)]
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=10)

    assert sorted((line[0], line[-1]) for line in said) == sorted(
        (f"{number}-0", word) for number in range(5) for word in ("two", "three")
    )
    assert rest == ""
