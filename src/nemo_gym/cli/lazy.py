"""A click group whose commands are imported only when they run."""

import importlib
from collections.abc import Mapping

import click

from nemo_gym.cli.commands import COMMANDS, Noun, Verb

__all__ = ["LazyGroup"]


class LazyGroup(click.Group):
    """Shows its commands from a table, imports the one that is called."""

    def __init__(self, name: str, help_text: str, entries: Mapping[str, Noun | Verb]) -> None:
        settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
        super().__init__(name, help=help_text, context_settings=settings)
        self._entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        del ctx
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command; None when there is none of that name."""
        del ctx
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        if isinstance(entry, Noun):
            return LazyGroup(cmd_name, entry.help, entry.verbs)
        return _load(cmd_name, entry)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a guess at what a mistyped name meant."""
        name = args[0]
        if name not in self._entries and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {name!r}.{self._guess(ctx, name)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without importing any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self._entries.items()])

    def _guess(self, ctx: click.Context, name: str) -> str:
        from nemo_gym.config.nearest import nearest  # only after a mistake

        here = {f"{ctx.command_path} {entry}": entry for entry in self._entries}
        anywhere = {
            f"gym {noun} {verb}": verb
            for noun, entry in COMMANDS.items()
            if isinstance(entry, Noun)
            for verb in entry.verbs
        }
        for known in (here, anywhere):
            guess = nearest(name, known.values())
            if guess is not None:
                full = [text for text, last in known.items() if last == guess]
                return f" Did you mean '{full[0]}'?"
        return ""


def _load(name: str, verb: Verb) -> click.Command:
    module, _, function = verb.target.partition(":")
    command: object = getattr(importlib.import_module(module), function)
    if not isinstance(command, click.Command):
        raise TypeError(f"{verb.target} is no click command")
    command.name = name
    command.context_settings.setdefault("max_content_width", 100)
    return command
