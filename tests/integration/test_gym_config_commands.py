"""`gym` as a process: what a user sees of a configuration, right or wrong."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.config_files import write_root
from support.gym_command import gym

ASK = ("--resources-server", "mcqa", "--model-type", "some_model")
HEAVY = ("asyncio", "fastapi", "omegaconf", "pydantic", "rich", "starlette", "uvicorn", "yaml")


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import sys; from nemo_gym.cli.main import gym, run; run(gym, ['--help']);"
        "run(gym, ['env', '--help']); print(sorted(set(sys.modules) & set(sys.argv[1:])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *HEAVY],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "[]"


def test_help_answers_within_150_ms_of_cpu(tmp_path: Path) -> None:
    assert min(_cpu_s_of_help(tmp_path) for _ in range(5)) < 0.15


@pytest.mark.parametrize(
    ("arguments", "env", "said"),
    [
        (("env", "validate", *ASK), None, ["there is no env.yaml", "policy_api_key: sk-…"]),
        (("env", "resolve", *ASK), "a: [1\nb: 2\n", ["env.yaml:2, column 2", "not valid YAML"]),
        (("env", "resolve", "--resources-server", "mqca"), "", ["did you mean 'mcqa'?"]),
        (("env", "resolve", "head_server.port=x"), "", ["head_server.port must be", "override"]),
        (("env", "resolve", "++observabilty_enabled=1"), "", ["'observability_enabled'"]),
        (("env", "resolve", "nonsense=1"), "", ["there is no key nonsense"]),
        (("env", "resolve", "--config", "nope.yaml"), "", ["there is no file nope.yaml"]),
        (("env", "start", "--resources-server", "mqca"), "", ["did you mean 'mcqa'?"]),
        (("env", "start", *ASK, "++policy_api_key=7"), "", ["policy_api_key must be text"]),
        (("list", "models", "--search-dir", "nope"), "", ["there is no directory nope"]),
        (("env", "init", "Bad Name"), "", ["cannot be the name", "lower-case"]),
    ],
)
def test_a_mistake_ends_in_one_message_and_exit_code_2(
    tmp_path: Path, arguments: tuple[str, ...], env: str | None, said: list[str]
) -> None:
    ended = gym(*arguments, cwd=write_root(tmp_path, env=env))

    assert ended.code == 2
    assert "Traceback" not in ended.err
    assert ended.out == ""
    for text in said:
        assert text in ended.err


def test_a_right_configuration_is_said_to_be_right(tmp_path: Path) -> None:
    ended = gym("env", "validate", *ASK, cwd=write_root(tmp_path))

    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "ok: 3 servers (mcqa, mcqa_simple_agent, policy_model)\n"


def test_every_mistake_is_listed_for_machines_too(tmp_path: Path) -> None:
    root = write_root(tmp_path)
    ended = gym("env", "validate", *ASK, "++one=1", "++two=2", "--json", cwd=root)
    report = json.loads(ended.out)

    assert ended.code == 2
    assert report["ok"] is False
    assert [m["where"] for m in report["mistakes"]] == ["override ++one", "override ++two"]


def test_the_resolved_configuration_is_yaml_without_secrets(tmp_path: Path) -> None:
    root = write_root(tmp_path)
    plain = gym("env", "resolve", *ASK, cwd=root)
    as_json = gym("env", "resolve", *ASK, "--json", cwd=root)
    with_origins = gym("env", "resolve", *ASK, "--origins", cwd=root)

    tree = yaml.safe_load(plain.out)
    assert tree["policy_model"]["responses_api_models"]["some_model"]["model"] == "some-name"
    assert tree["policy_api_key"] == "***"
    assert tree == json.loads(as_json.out) == yaml.safe_load(with_origins.out)
    assert "# env.yaml:2" in with_origins.out
    assert "sk-planted-key" not in plain.out + as_json.out + with_origins.out


def test_components_are_listed_with_where_they_are_and_what_they_are(tmp_path: Path) -> None:
    root = write_root(tmp_path)
    (root / "resources_servers/mcqa/README.md").write_text("# mcqa\n\nChoices.\n")
    table = gym("list", "resources-servers", cwd=root)
    listed = json.loads(gym("list", "resources-servers", "--json", cwd=root).out)

    assert ["mcqa", ".", "Choices."] in [line.split() for line in table.out.splitlines()]
    (mcqa,) = [entry for entry in listed if entry["name"] == "mcqa"]
    assert mcqa["folder"] == str(root / "resources_servers/mcqa")


def test_a_reader_that_goes_away_leaves_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -m nemo_gym list models --json | true"
    done = subprocess.run(  # noqa: S602 - a pipe is what is tested
        command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert "Traceback" not in done.stderr


def test_the_installed_command_is_the_module(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("gym")
    done = subprocess.run(
        [script, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert done.stdout == gym("--version", cwd=tmp_path).out


def _cpu_s_of_help(folder: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "nemo_gym", "--help"],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_a_check_of_nothing_says_what_to_give(tmp_path: Path) -> None:
    (tmp_path / "env.yaml").write_text("policy_model_name: m\n")

    told = gym("env", "validate", cwd=tmp_path)
    machine = gym("env", "validate", "--json", cwd=tmp_path)
    given = gym("env", "validate", "++telemetry.metrics.enabled=true", cwd=tmp_path)

    assert told.code == machine.code == 2
    assert "nothing to check: the configuration defines no servers" in told.err
    assert "--resources-server NAME" in told.err
    assert json.loads(machine.out)["ok"] is False
    assert given.code == 0, given.err


@pytest.mark.parametrize(
    ("command", "text", "where"),
    [
        ("validate", "telemetry:\n  otlp:\n    endpoint: c:4318\n", "extra.yaml:3"),
        ("start", "telemetry:\n  otlp:\n    endpoint: c:4318\n", "extra.yaml:3"),
        ("validate", "at: c:4318\ntelemetry: {otlp: {endpoint: '${at}'}}\n", "extra.yaml:1"),
    ],
)
def test_a_collector_that_can_be_none_is_named_where_it_was_written(
    tmp_path: Path, command: str, text: str, where: str
) -> None:
    root = write_root(tmp_path)
    (root / "extra.yaml").write_text(text)
    switches = ("++telemetry.metrics.enabled=true", "++telemetry.traces.enabled=true")
    ended = gym("env", command, *ASK, "--config", "extra.yaml", *switches, cwd=root)
    key = "at" if "at:" in text else "telemetry.otlp.endpoint"

    assert ended.code == 2
    assert ended.err.count("'c:4318' does not begin with http:// or https://") == 1
    assert f"where: {where} ({key})\n  mend:  write http://c:4318" in ended.err


def test_a_collector_that_a_variable_names_is_checked_with_all_else(tmp_path: Path) -> None:
    variable = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
    asked = ("env", "validate", *ASK, "--json", "++telemetry.metrics.enabled=true")
    root = write_root(tmp_path)
    wrong = gym(*asked, "++one=1", cwd=root, environ={variable: "c:4318"})
    right = gym(*asked, cwd=root, environ={variable: "http://c:4318"})
    places = [mistake["where"] for mistake in json.loads(wrong.out)["mistakes"]]

    assert right.code == 0, right.out
    assert places == [f"the environment variable {variable}", "override ++one"]


def test_where_a_key_is_wrong_nothing_is_guessed_of_collectors(tmp_path: Path) -> None:
    switches = ("++telemetry.metrics.enabled=true", "++telemetry.otlp={endpoint: c, prtocol: grpc}")
    ended = gym("env", "validate", *ASK, "--json", *switches, cwd=write_root(tmp_path))

    (mistake,) = json.loads(ended.out)["mistakes"]
    assert "did you mean 'telemetry.otlp.protocol'" in mistake["what"]
