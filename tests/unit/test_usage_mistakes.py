"""A command line that cannot be read is told as every mistake is: what, where, how to mend."""

import pytest

from nemo_gym.cli.main import gym, run

EVAL = ["eval", "run", "--input", "rows.jsonl", "--output", "x.jsonl"]
WRONG = {
    "no-such-option": ([*EVAL, "--modle", "m"], "No such option '--modle'", "gym eval run"),
    "missing-option": (["eval", "run"], "Missing option '--input'", "gym eval run"),
    "wrong-value": ([*EVAL, "--workers", "0"], "Invalid value for '--workers'", "gym eval run"),
    "missing-argument": (["eval", "aggregate"], "Missing argument", "gym eval aggregate"),
    "no-such-command": (["eval", "rnu"], "No such command 'rnu'. Did you mean", "gym eval"),
    "no-such-noun": (["evla"], "No such command 'evla'", "gym"),
}


@pytest.mark.parametrize(("given", "said", "command"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_command_line_has_the_form_of_every_mistake(
    capsys: pytest.CaptureFixture[str], given: list[str], said: str, command: str
) -> None:
    code = run(gym, given)

    what, *more = capsys.readouterr().err.splitlines()
    assert code == 2
    assert what.startswith(f"error: {said}")
    assert more[-2:] == [f"  where: {command}", f"  mend:  '{command} --help' shows what it takes"]


def test_a_command_without_arguments_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(gym, ["eval"])

    assert code == 2
    assert capsys.readouterr().err.startswith("Usage: gym eval")


def test_options_that_exclude_each_other_are_a_mistake_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = run(gym, [*EVAL, "--resume", "--overwrite"])

    err = capsys.readouterr().err
    assert code == 2
    assert "error: --resume and --overwrite exclude each other\n  where: " in err
