"""The command `gym`: arguments in, an exit code out. The wall behind which every error ends.

0 done, 1 something failed, 2 a mistake of the user (one message, no traceback), 130 interrupted.
A traceback is a bug of this package.
"""

import contextlib
import sys
from collections.abc import Sequence

import click

import nemo_gym
from nemo_gym.cli.commands import COMMANDS
from nemo_gym.cli.lazy import LazyGroup
from nemo_gym.cli.printable import printable
from nemo_gym.cli.surroundings import (
    allow_open_files,
    give_streams,
    reader_is_gone,
    refuse_odd_arguments,
    reports_unwritten,
    surrounding_mistake,
)
from nemo_gym.errors import GymError, UserMistake

__all__ = ["gym", "main", "run"]

_HELP = """Run LLM agents in environments, collect rollouts, keep the evidence of every model call.

\b
Example:
  gym eval run --resources-server mcqa --model-type local_model --agent mcqa_simple_agent \\
      --input resources_servers/mcqa/data/example.jsonl --output results/mcqa.jsonl
"""

gym = click.version_option(nemo_gym.__version__, prog_name="gym", message="%(prog)s %(version)s")(
    LazyGroup("gym", _HELP, COMMANDS)
)

_PLAIN_WORDS = {
    "integer range": "whole number",
    "integer": "whole number",
    "float range": "number",
    "float": "number",
}
"""What click calls what it wants, and what a user calls it."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its exit code."""
    give_streams()
    allow_open_files()
    given = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run(gym, given))


def run(group: click.Group, arguments: list[str]) -> int:
    """Run one command of `group`; return its exit code, having said what went wrong."""
    try:
        refuse_odd_arguments(arguments)
        result = group.main(arguments, prog_name="gym", standalone_mode=False)
    except click.Abort:
        click.echo("interrupted", err=True)
        code = 130
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = error.exit_code
    except click.UsageError as error:
        _say(_as_mistake(error))
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except GymError as error:
        _say(error)
        code = 2 if isinstance(error, UserMistake) else 1
    except SystemExit:
        if not reader_is_gone():
            raise
        code = 0  # whoever read the output has read enough
    except Exception as error:  # noqa: BLE001 - the wall: a bug ends as a traceback without secrets
        code = _said_of(error, arguments)
    else:
        code = result if isinstance(result, int) else 0
    return code


def _as_mistake(error: click.UsageError) -> UserMistake:
    """Return a command line that click refuses in the form of every other mistake."""
    command = error.ctx.command_path if error.ctx else "gym"
    mend = f"'{command} --help' shows what it takes"
    said = error.format_message()
    for of_click, plain in _PLAIN_WORDS.items():
        said = said.replace(f"is not a valid {of_click}.", f"is not a {plain}.")
    return UserMistake(said, where=command, mend=mend)


def _said_of(error: Exception, arguments: list[str]) -> int:
    """Say what an error that nobody meant to raise comes from; return the exit code."""
    mistake = surrounding_mistake(error)
    unwritten = reports_unwritten(error) if isinstance(error, OSError) else None
    if mistake is not None:
        _say(mistake)
        return 2
    if unwritten is not None:
        _say(unwritten)
        return 1
    from nemo_gym.cli.crash import redacted_traceback  # only after a bug

    click.echo(redacted_traceback(arguments), err=True)
    return 1


def _say(error: GymError) -> None:
    with contextlib.suppress(OSError):  # whoever read standard error may be gone
        click.secho("error: ", fg="red", bold=True, nl=False, err=True)
        click.echo(printable(str(error)), err=True)
