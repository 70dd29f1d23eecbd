"""What a command says when the ground under it is gone."""

import os
import resource
from pathlib import Path

import click
import pytest

from nemo_gym.cli import main as cli
from nemo_gym.cli.surroundings import allow_open_files, reports_unwritten


def _run(command: click.Command, *arguments: str) -> int:
    return cli.run(click.Group(commands={"x": command}), ["x", *arguments])


@click.command()
@click.argument("names", nargs=-1)
def _stands_somewhere(names: tuple[str, ...]) -> None:
    click.echo(f"{Path.cwd()} {names}")


def test_a_working_directory_that_was_removed_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    assert _run(_stands_somewhere) == 2
    said = capsys.readouterr().err
    assert "the working directory does not exist any more" in said
    assert "mend:" in said
    assert "Traceback" not in said


def test_an_argument_that_is_no_text_is_shown_and_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _run(_stands_somewhere, os.fsdecode(b"results/\xff.jsonl")) == 2
    assert r"results/\xff.jsonl" in capsys.readouterr().err


def test_a_bug_in_a_directory_whose_name_is_no_text_is_put_down_to_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    monkeypatch.chdir(folder)

    @click.command()
    def writes() -> None:
        str(Path.cwd()).encode()

    assert _run(writes) == 2
    assert "is not UTF-8 text" in capsys.readouterr().err


def test_a_process_takes_as_many_open_files_as_it_may() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        allow_open_files()
        taken = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert taken[0] >= min(soft, 65_536)
    assert taken[1] == hard


def test_a_disk_error_that_is_not_of_printing_is_a_bug_as_any_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @click.command()
    def reads() -> None:
        Path("/nowhere/at/all").read_text()

    assert _run(reads) == 1
    assert "Traceback" in capsys.readouterr().err
    assert reports_unwritten(OSError("never raised")) is None
