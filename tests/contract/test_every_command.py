"""Every command that is named exists, says what it does, and shows an example that parses."""

import importlib
import re
import shlex

import click
import pytest

from nemo_gym.cli.commands import COMMANDS, Noun, Verb
from nemo_gym.cli.main import gym

TARGETS = {
    f"{name} {verb}".strip(): entry
    for name, noun in COMMANDS.items()
    for verb, entry in (noun.verbs.items() if isinstance(noun, Noun) else [("", noun)])
}


@pytest.mark.parametrize(("name", "verb"), TARGETS.items(), ids=TARGETS)
def test_a_command_has_help_with_an_example_that_parses(name: str, verb: Verb) -> None:
    command = _command(verb)
    text = command.get_help(click.Context(command, info_name=name))
    examples = _examples(text)

    assert command.help
    assert examples, text
    for arguments in examples:
        found, rest = _find(arguments)
        found.make_context(" ".join(arguments), rest).close()


def _command(verb: Verb) -> click.Command:
    module, _, function = verb.target.partition(":")
    command = getattr(importlib.import_module(module), function)
    assert isinstance(command, click.Command)
    return command


def _examples(text: str) -> list[list[str]]:
    _, _, after = re.sub(r"\\\n\s*", " ", text).partition("Example")
    lines = [line.strip() for line in after.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("gym ")]


def _find(arguments: list[str]) -> tuple[click.Command, list[str]]:
    group: click.Command = gym
    rest = list(arguments)
    while isinstance(group, click.Group):
        command = group.get_command(click.Context(group), rest.pop(0))
        assert command is not None, arguments
        group = command
    return group, rest
