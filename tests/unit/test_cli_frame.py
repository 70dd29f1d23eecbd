"""The frame of the command line: names, guesses, walls, exit codes."""

from collections.abc import Callable

import click
import pytest

import nemo_gym
from nemo_gym.cli import main as cli
from nemo_gym.cli.commands import COMMANDS, Noun
from nemo_gym.cli.crash import redacted_traceback
from nemo_gym.cli.options import config_options
from nemo_gym.config.load import ConfigRequest
from nemo_gym.errors import ServerDied, UserMistake


@pytest.mark.parametrize(
    ("arguments", "guess"),
    [
        (["evn"], "gym env"),
        (["start"], "gym env start"),
        (["strat"], "gym env start"),
        (["env", "strat"], "gym env start"),
        (["env", "vaildate"], "gym env validate"),
        (["eval", "start"], "gym env start"),
        (["list", "resources_server"], "gym list resources-servers"),
    ],
)
def test_a_mistyped_command_is_told_what_was_meant(
    capsys: pytest.CaptureFixture[str], arguments: list[str], guess: str
) -> None:
    assert _code(arguments) == 2
    assert f"Did you mean '{guess}'?" in capsys.readouterr().err


def test_a_name_like_no_command_gets_no_guess(capsys: pytest.CaptureFixture[str]) -> None:
    assert _code(["qqqqqqqq"]) == 2
    assert "Did you mean" not in capsys.readouterr().err


def test_a_mistyped_option_is_told_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert _code(["env", "validate", "--model-tpye", "x"]) == 2
    assert "--model-type" in capsys.readouterr().err


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert _code(["--version"]) == 0
    assert capsys.readouterr().out == f"gym {nemo_gym.__version__}\n"


@pytest.mark.parametrize("noun", [n for n, e in COMMANDS.items() if isinstance(e, Noun)])
def test_a_group_shows_its_commands_without_importing_them(
    capsys: pytest.CaptureFixture[str], noun: str
) -> None:
    entry = COMMANDS[noun]
    assert isinstance(entry, Noun)
    assert _code([noun, "--help"]) == 0
    out = capsys.readouterr().out
    for verb, about in entry.verbs.items():
        assert verb in out
        assert about.help.split()[0] in out


def _raise(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "said", "traceback"),
    [
        (UserMistake("wrong", where="f:1", mend="do"), 2, "error: wrong\n  where: f:1\n", False),
        (ServerDied("mcqa", "ended"), 1, "error: mcqa: ended", False),
        (click.UsageError("bad option"), 2, "bad option", False),
        (KeyboardInterrupt(), 130, "interrupted", False),
        (RuntimeError("a bug"), 1, "RuntimeError: a bug", True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_every_end_of_a_command_has_its_exit_code(
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    said: str,
    traceback: bool,
) -> None:
    group = click.Group(commands={"x": click.Command("x", callback=_raise(error))})

    assert cli.run(group, ["x"]) == code
    err = capsys.readouterr().err
    assert said in err
    assert ("Traceback" in err) is traceback


def test_a_number_that_a_command_returns_is_its_exit_code() -> None:
    group = click.Group(commands={"x": click.Command("x", callback=lambda: 3)})

    assert cli.run(group, ["x"]) == 3


def test_a_traceback_shows_no_secret_of_the_arguments() -> None:
    arguments = ["--model-api-key", "sk-first-key", "++x.api_key=sk-second-key", "a=plain"]
    text = ""
    try:
        _raise(RuntimeError("sk-first-key sk-second-key plain"))()
    except RuntimeError:
        text = redacted_traceback(arguments)

    assert "sk-" not in text
    assert "plain" in text


def test_the_options_of_a_configuration_arrive_as_one_request() -> None:
    seen: list[ConfigRequest] = []

    @click.command()
    @config_options
    @click.option("--own", type=int)
    def command(request: ConfigRequest, own: int) -> None:
        assert own == 3
        seen.append(request)

    command.main(
        [
            "--resources-server", "a", "++x=1", "--model-type", "m", "--agent-type", "g",
            "--config", "one.yaml", "~y", "--config", "two.yaml", "--own", "3", "--model", "n",
            "--model-url", "u", "--model-api-key", "k", "--search-dir", "d", "+z=[1, 2]", "w=3",
        ],
        standalone_mode=False,
    )  # fmt: skip

    (request,) = seen
    assert request.resources_servers == ("a",)
    assert request.agent_types == ("g",)
    assert request.model_types == ("m",)
    assert request.config_files == ("one.yaml", "two.yaml")
    assert request.overrides == ("++x=1", "~y", "+z=[1, 2]", "w=3")
    assert (request.model, request.model_url, request.model_api_key) == ("n", "u", "k")
    assert [str(path) for path in request.search_dirs] == ["d"]
    assert "model_api_key" not in repr(request)
    assert "++x=1" not in repr(request)


def _code(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_the_working_directory_is_no_secret_of_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PWD", "/home/me/evaluations")
    monkeypatch.setenv("DB_PWD", "hunter2-hunter2")
    text = ""
    try:
        int("/home/me/evaluations hunter2-hunter2")
    except ValueError:
        text = redacted_traceback([])

    assert "/home/me/evaluations" in text
    assert "hunter2" not in text
