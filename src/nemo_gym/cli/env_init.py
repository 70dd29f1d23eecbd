"""`gym env init`: write the files of a new environment, ready to run and to be changed."""

from pathlib import Path

import click

from nemo_gym.cli.options import example
from nemo_gym.cli.scaffold import environment_files
from nemo_gym.config.components import builtin_root, list_components
from nemo_gym.errors import OutputExists, OutputUnusable, UserMistake

__all__ = ["init"]

_KIND = "resources_servers"


@click.command(epilog=example("gym env init word_count"))
@click.argument("name")
@click.option(
    "--dir",
    "root",
    type=click.Path(path_type=Path),
    default=Path(),
    metavar="DIR",
    help="Where resources_servers/NAME is made; the working directory unless given.",
)
def init(name: str, root: Path) -> None:
    """Make resources_servers/NAME: a small environment that runs, with data and tests."""
    texts = environment_files(name)
    if any(component.name == name for component in list_components([builtin_root()], _KIND)):
        raise UserMistake(f"{name} is a built-in environment", mend="choose another name")
    folder = root / _KIND / name
    if folder.exists():
        raise OutputExists(
            f"{folder} exists already", where=str(folder.absolute()), mend="choose another name"
        )
    try:
        for path, text in texts.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise OutputUnusable(
            f"{folder} cannot be written: {reason}",
            where=str(folder.absolute()),
            mend="choose another place with --dir",
        ) from error
    for path in texts:
        click.echo(f"wrote {folder / path}")
    click.echo(_next(name, root))


def _next(name: str, root: Path) -> str:
    elsewhere = root != Path()
    search = f" --search-dir {root}" if elsewhere else ""
    folder = root / _KIND / name
    return "\n".join(
        [
            "",
            "next:",
            f"  python -m pytest {folder}",
            f"  gym env validate --resources-server {name} --model-type local_model{search}",
            f"  gym eval run --resources-server {name} --model-type local_model{search} \\",
            f"      --agent {name}_simple_agent \\",
            f"      --input {folder}/data/example.jsonl --output results/{name}.jsonl",
        ]
    )
