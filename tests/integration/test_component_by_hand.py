"""`python app.py`: one component served by hand, configured by the working directory."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.in_cell import COMPONENTS

_NOTEBOOK = COMPONENTS / "resources_servers" / "notebook" / "app.py"
_PARROT = COMPONENTS / "responses_api_models" / "parrot" / "app.py"
_AGENT = COMPONENTS / "responses_api_agents" / "patient_agent" / "app.py"


def _command(app: Path, *arguments: str) -> list[str]:
    return [sys.executable, str(app), *arguments]


@contextmanager
def _served(app: Path, folder: Path, *arguments: str) -> Iterator[tuple[str, str]]:
    """Yield the printed line and the origin of a component run by hand."""
    process = subprocess.Popen(
        _command(app, *arguments), cwd=folder, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline().strip()
        yield line, line.rpartition(" at ")[2]
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _post(url: str, body: object) -> dict[str, object]:
    asked = urllib.request.Request(  # noqa: S310 - loopback
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=10) as answer:  # noqa: S310 - loopback
        found: dict[str, object] = json.loads(answer.read())
        return found


def test_an_environment_is_served_with_its_own_configuration(tmp_path: Path) -> None:
    with _served(_NOTEBOOK, tmp_path) as (line, origin):
        answer = _post(f"{origin}/seed_session", {})

    assert line.startswith("notebook (resources_servers/notebook) at http://127.0.0.1:")
    assert answer == {}


def test_settings_come_from_files_of_the_working_directory_and_overrides(tmp_path: Path) -> None:
    key = "policy_model.responses_api_models.parrot.model"
    with _served(_PARROT, tmp_path, f"++{key}=parrot-9") as (_, origin):
        answer = _post(f"{origin}/v1/responses", {"input": "hello"})

    assert answer["model"] == "parrot-9"


def test_an_agent_finds_servers_where_the_configuration_says(tmp_path: Path) -> None:
    with (
        _served(_NOTEBOOK, tmp_path) as (_, notebook),
        _served(_PARROT, tmp_path) as (_, parrot),
    ):
        config = tmp_path / "run.yaml"
        config.write_text(
            f"""
notebook: {{resources_servers: {{notebook: {{port: {notebook.rpartition(":")[2]}}}}}}}
policy_model: {{responses_api_models: {{parrot: {{port: {parrot.rpartition(":")[2]}}}}}}}
patient_agent:
  responses_api_agents:
    patient_agent:
      resources_server: {{name: notebook}}
"""
        )
        with _served(_AGENT, tmp_path, "--config", str(config)) as (_, agent):
            row = {"responses_create_params": {"input": "write tea"}, "wanted": ["tea"]}
            answer = _post(f"{agent}/run", row)

    assert answer["reward"] == 1.0
    assert answer["notes"] == ["tea"]


def test_a_mistake_is_one_message_without_a_traceback(tmp_path: Path) -> None:
    key = "notebook.resources_servers.notebook.max_notes"

    done = subprocess.run(
        _command(_NOTEBOOK, f"{key}=many"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 2
    assert key in done.stderr
    assert "Traceback" not in done.stderr
