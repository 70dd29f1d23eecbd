"""`gym list …`: the components that can be used, where each is found, and what it is."""

from collections.abc import Sequence
from pathlib import Path

import click

from nemo_gym.cli.options import example, json_option, search_dir_option
from nemo_gym.cli.output import print_json, print_table
from nemo_gym.config.components import builtin_root, component_roots, list_components

__all__ = ["agents", "models", "resources_servers"]


@click.command(epilog=example("gym list agents"))
@search_dir_option
@json_option
def agents(search_dirs: tuple[Path, ...], *, as_json: bool) -> None:
    """List agent types: harnesses that run a model in an environment."""
    _show("responses_api_agents", search_dirs, as_json=as_json)


@click.command(epilog=example("gym list models --json"))
@search_dir_option
@json_option
def models(search_dirs: tuple[Path, ...], *, as_json: bool) -> None:
    """List model types: servers in front of a provider, for --model-type."""
    _show("responses_api_models", search_dirs, as_json=as_json)


@click.command(epilog=example("gym list resources-servers"))
@search_dir_option
@json_option
def resources_servers(search_dirs: tuple[Path, ...], *, as_json: bool) -> None:
    """List environments: tools, state and verifier, for --resources-server."""
    _show("resources_servers", search_dirs, as_json=as_json)


def _show(kind: str, search_dirs: Sequence[Path], *, as_json: bool) -> None:
    found = list_components(component_roots(search_dirs, Path.cwd()), kind)
    if as_json:
        print_json(
            [
                {
                    "name": each.name,
                    "kind": kind,
                    "root": str(each.root),
                    "folder": str(each.folder),
                    "description": each.description,
                }
                for each in found
            ]
        )
        return
    rows = [[each.name, _shown(each.root), each.description] for each in found]
    print_table(["name", "root", "description"], rows)


def _shown(root: Path) -> str:
    names = {builtin_root(): "built-in", Path.cwd().resolve(): "."}
    return names.get(root, str(root))
