"""Which file and which prefix a record gets."""

import io
import logging
from collections.abc import Generator
from pathlib import Path

import pytest

from nemo_gym.runtime.logs import ServerLogHandler, install_logging, server_named, tail


@pytest.fixture
def console() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def handler(tmp_path: Path, console: io.StringIO) -> Generator[ServerLogHandler]:
    root = logging.getLogger()
    level = root.level
    made = install_logging(
        tmp_path, default="cell-0", redact=lambda t: t.replace("sk-1", "***"), console=console
    )
    yield made
    root.removeHandler(made)
    root.setLevel(level)
    made.close()


@pytest.mark.usefixtures("handler")
def test_a_record_goes_to_the_file_of_its_server(tmp_path: Path, console: io.StringIO) -> None:
    with server_named("mcqa"):
        logging.getLogger("x").warning("slow")
    logging.getLogger("x").warning("whole cell")

    assert "slow" in (tmp_path / "mcqa.log").read_text()
    assert "whole cell" in (tmp_path / "cell-0.log").read_text()
    assert all(
        line.startswith(("[mcqa] ", "[cell-0] ")) for line in console.getvalue().splitlines()
    )


@pytest.mark.usefixtures("handler")
def test_a_traceback_is_redacted_and_prefixed_line_by_line(
    tmp_path: Path, console: io.StringIO
) -> None:
    try:
        int("bad key sk-1")
    except ValueError:
        logging.getLogger("x").exception("failed with sk-1")

    assert "sk-1" not in console.getvalue() + (tmp_path / "cell-0.log").read_text()
    assert all(line.startswith("[cell-0] ") for line in console.getvalue().splitlines())


def test_tail_has_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(f"{n}\n" for n in range(100)))

    assert tail(log, 2) == "98\n99"
    assert tail(tmp_path / "none.log") == ""


def test_a_wrong_log_call_fails_nobody_and_is_found_in_the_log(
    handler: ServerLogHandler, tmp_path: Path
) -> None:
    # Handed to the handler itself: pytest's own raises for such a record.
    record = logging.LogRecord("x", logging.INFO, __file__, 1, "no place for it", ("sk-1",), None)
    handler.handle(record)

    text = (tmp_path / "cell-0.log").read_text()
    assert "a log record that cannot be formatted" in text
    assert "test_runtime_logs.py" in text
    assert "sk-1" not in text


def test_a_log_that_cannot_be_written_is_said_once(
    handler: ServerLogHandler, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for server in ("a", "b", "c"):
        (tmp_path / f"{server}.log").mkdir()
        with server_named(server):
            logging.getLogger("x").warning("lost")

    assert handler is not None
    said = capsys.readouterr().err
    assert said.count("cannot be written") == 1
    assert "Traceback" not in said
