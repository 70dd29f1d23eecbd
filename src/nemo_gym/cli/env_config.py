"""`gym env validate` and `gym env resolve`: look at a configuration without starting anything."""

from collections.abc import Iterable, Iterator

import click
import yaml

from nemo_gym.cli.options import config_options, example, json_option
from nemo_gym.cli.output import print_json
from nemo_gym.config.document import KeyPath, dotted
from nemo_gym.config.load import (
    ConfigRequest,
    check_run_config,
    load_run_config,
    no_servers,
)
from nemo_gym.config.resolved import RunConfig
from nemo_gym.errors import UserMistake

__all__ = ["resolve", "validate"]


@click.command(epilog=example("gym env validate --resources-server mcqa --model-type local_model"))
@config_options
@json_option
def validate(request: ConfigRequest, *, as_json: bool) -> int:
    """Check a configuration and list every mistake in it; exit code 2 when there is one."""
    mistakes = check_run_config(request)
    config = None if mistakes else load_run_config(request)
    if config is not None and not (config.servers or _is_anything_given(request)):
        mistakes, config = (no_servers("nothing to check"),), None
    warnings = () if config is None else tuple(dict.fromkeys(_warnings(config)))
    if as_json:
        told = {"mistakes": _told(mistakes), "warnings": _told(warnings)}
        print_json({"ok": not mistakes, **told})
        return 2 if mistakes else 0
    for number, mistake in enumerate(mistakes, 1):
        click.echo(f"{number}. {mistake}", err=True)
    for warning in warnings:
        click.secho(f"warning: {warning}", fg="yellow", err=True)
    if config is not None:
        names = ", ".join(server.name for server in config.servers) or "none"
        click.echo(f"ok: {len(config.servers)} servers ({names})")
    return 2 if mistakes else 0


def _warnings(config: RunConfig) -> Iterator[UserMistake]:
    yield from config.misfits.values()
    section = config.tree.get("telemetry")
    if isinstance(section, dict) and section:
        # pydantic with it, so only where there is something to look at.
        from nemo_gym.telemetry.settings import telemetry_options
        from nemo_gym.telemetry.unread import unread_lines

        yield from map(UserMistake, unread_lines(telemetry_options(section)))


def _is_anything_given(request: ConfigRequest) -> bool:
    """Say whether a command says what to look at; what lies in `env.yaml` it does not say."""
    return any(
        (
            *(request.resources_servers, request.agent_types, request.model_types),
            *(request.config_files, request.overrides),
            *(request.model, request.model_url, request.model_api_key),
        )
    )


def _told(mistakes: Iterable[UserMistake]) -> list[dict[str, str | None]]:
    return [{"what": each.what, "where": each.where, "mend": each.mend} for each in mistakes]


@click.command(epilog=example("gym env resolve --resources-server mcqa --model-type local_model"))
@config_options
@click.option("--origins", is_flag=True, help="Say behind each value where it was set.")
@json_option
def resolve(request: ConfigRequest, *, origins: bool, as_json: bool) -> None:
    """Print the configuration after merging, references and overrides, with secrets hidden."""
    config = load_run_config(request)
    tree = config.hidden()
    if as_json:
        print_json({"config": tree, "origins": dict(config.origins)} if origins else tree)
    elif origins:
        click.echo(_with_origins(tree, config))
    else:
        click.echo(_yaml(tree), nl=False)


def _yaml(value: object) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=10**6)


def _with_origins(tree: dict[str, object], config: RunConfig) -> str:
    lines = list(_lines(tree, (), config))
    width = min(60, max((len(text) for text, _ in lines), default=0))
    return "\n".join(f"{text:<{width}}  # {origin}" for text, origin in lines)


def _lines(value: object, path: KeyPath, config: RunConfig) -> Iterator[tuple[str, str]]:
    """Return one line of YAML a key, and where the key was set; only mappings are opened."""
    if not isinstance(value, dict):
        return
    for key, below in value.items():
        here = (*path, key)
        opened = isinstance(below, dict) and below
        name = _flow(key) + ":"
        text = name if opened else f"{name} {_flow(below)}"
        yield "  " * len(path) + text, config.origins.get(dotted(here), "")
        yield from _lines(below, here, config)


def _flow(value: object) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("...\n").strip()
