"""Print the reference of every `gym` command as Markdown, from the commands' own help."""

import os

import click

from nemo_gym.cli.commands import COMMANDS, Noun
from nemo_gym.cli.main import gym

__all__ = ["reference"]

_WIDTH = 92


def reference() -> str:
    """Return one section a command, in the order of `gym --help`."""
    os.environ["COLUMNS"] = str(_WIDTH)
    sections = []
    for noun, entry in COMMANDS.items():
        verbs = list(entry.verbs) if isinstance(entry, Noun) else [""]
        sections += [_section([noun, verb] if verb else [noun]) for verb in verbs]
    return "\n".join(sections)


def _section(path: list[str]) -> str:
    command: click.Command = gym
    context = click.Context(gym, info_name="gym", terminal_width=_WIDTH)
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(context, name)
        assert found is not None, path
        command = found
        context = click.Context(command, info_name=name, parent=context, terminal_width=_WIDTH)
    lines = (line.rstrip() for line in command.get_help(context).splitlines())
    return f"## gym {' '.join(path)}\n\n```text\n" + "\n".join(lines) + "\n```\n"


if __name__ == "__main__":
    print(reference())
