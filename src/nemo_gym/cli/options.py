"""Options that several commands share.

`config_options` gives a command everything that says which configuration is meant, and hands it
over as one `ConfigRequest` in the argument `request`.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from nemo_gym.errors import ConfigMistake, UserMistake

__all__ = [
    "FiniteRange",
    "config_options",
    "example",
    "json_option",
    "placement_options",
    "search_dir_option",
]

Function = Callable[..., Any]

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
"""`--json`, in the argument `as_json`."""

search_dir_option = click.option(
    "--search-dir",
    "search_dirs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Look for components here first: a folder that holds resources_servers/ and the like.",
)


class FiniteRange(click.FloatRange):
    """A number within bounds; `nan` and `inf`, which Python takes for numbers, are none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def example(*lines: str) -> str:
    """Return the end of a command's help: commands that run as they stand."""
    return "\n".join(["\b", "Example:", *(f"  {line}" for line in lines)])


def placement_options(function: Function) -> Function:
    """Add `--workers` and `--one-process-each`, in the arguments of these names.

    A command with `--no-serve` starts no processes, so that it takes neither of them then.
    """
    workers = click.option(
        "--workers",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        metavar="N",
        help="Cells: processes that each host every server.",
    )
    one_each = click.option(
        "--one-process-each",
        is_flag=True,
        help="Give every server a process of its own, with HTTP between them.",
    )

    @functools.wraps(function)
    def checked(**given: Any) -> Any:
        _refuse_contradictions(given)
        return function(**given)

    return workers(one_each(checked))


def _refuse_contradictions(given: Mapping[str, Any]) -> None:
    if given["workers"] > 1 and given["one_process_each"]:
        raise UserMistake(
            "--workers and --one-process-each exclude each other",
            where=f"--workers {given['workers']} --one-process-each",
            mend="leave one of them out: a cell hosts every server in one process",
        )
    context = click.get_current_context()
    for name in ("workers", "one_process_each"):
        is_said = context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
        if given.get("no_serve") and is_said:
            option = f"--{name.replace('_', '-')}"
            raise UserMistake(
                f"{option} places servers that are started, and --no-serve starts none",
                where=option,
                mend=f"give {option} to 'gym env start', or leave --no-serve out",
            )


def config_options(function: Function) -> Function:
    """Add the options of a configuration; call `function` with `request` in their place."""

    @functools.wraps(function)
    def with_request(**given: Any) -> Any:
        # Commands without a configuration use this module, too, and start in half the time.
        from nemo_gym.config.load import ConfigRequest

        asked = {name: given.pop(name) for name in _REQUEST_FIELDS}
        return function(request=ConfigRequest(**asked, telemetry_mistakes=_mistakes), **given)

    decorated: Function = with_request
    for option in reversed(_CONFIG_OPTIONS):
        decorated = option(decorated)
    return decorated


def _mistakes(telemetry: Mapping[str, object]) -> Iterable[ConfigMistake]:
    if not telemetry:
        return ()
    # pydantic with it, so only where there is something to look at.
    from nemo_gym.telemetry.settings import endpoint_mistakes

    return endpoint_mistakes(telemetry)


_REQUEST_FIELDS = (
    "resources_servers",
    "agent_types",
    "model_types",
    "model",
    "model_url",
    "model_api_key",
    "config_files",
    "search_dirs",
    "overrides",
)
_CONFIG_OPTIONS: tuple[Callable[[Function], Function], ...] = (
    click.argument("overrides", nargs=-1, metavar="[KEY=VALUE | ++KEY=VALUE | ~KEY]..."),
    click.option(
        "--resources-server",
        "resources_servers",
        multiple=True,
        metavar="NAME",
        help="Environment whose configuration is taken; see 'gym list resources-servers'.",
    ),
    click.option(
        "--agent-type",
        "agent_types",
        multiple=True,
        metavar="NAME",
        help="Agent whose configuration is taken; see 'gym list agents'.",
    ),
    click.option(
        "--model-type",
        "model_types",
        multiple=True,
        metavar="NAME",
        help="Model server whose configuration is taken; see 'gym list models'.",
    ),
    click.option("--model", metavar="NAME", help="Model at its provider: policy_model_name."),
    click.option("--model-url", metavar="URL", help="URL of the provider: policy_base_url."),
    click.option(
        "--model-api-key",
        metavar="KEY",
        help="Key of the provider: policy_api_key. Shows in the process list; env.yaml does not.",
    ),
    click.option(
        "--config",
        "config_files",
        multiple=True,
        metavar="FILE",
        help="Further configuration file, merged in the order given.",
    ),
    search_dir_option,
)
