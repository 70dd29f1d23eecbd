"""Servers that ask for a dialect which their model server does not speak."""

from pathlib import Path

import pytest

from nemo_gym.config.load import load_run_config
from support.config_files import ask, write_root

AGENT = "class Agent:\n    CALLED_DIALECTS = {}\n"
MODEL = "class Model:\n    SERVED_DIALECTS = {}\n"


def _root(folder: Path, *, called: str | None, served: str | None) -> Path:
    """Write a root whose agent and model declare tuples, as source; None: nothing."""
    write_root(folder)
    for kind, name, text, declared in (
        ("responses_api_agents", "simple_agent", AGENT, called),
        ("responses_api_models", "some_model", MODEL, served),
    ):
        source = "" if declared is None else text.format(declared)
        (folder / kind / name / "app.py").write_text(source)
    return folder


def test_an_agent_that_calls_what_its_model_server_does_not_serve_is_told(tmp_path: Path) -> None:
    _root(tmp_path, called="('responses', 'chat')", served="('messages', 'chat')")
    other = MODEL.format("('chat', 'responses')")
    (tmp_path / "responses_api_models" / "other_model" / "app.py").write_text(other)

    misfits = load_run_config(ask(tmp_path)).misfits

    (misfit,) = misfits.values()
    assert list(misfits) == ["mcqa_simple_agent"]
    assert misfit.what == (
        "mcqa_simple_agent calls Responses, which policy_model (some_model) does not serve: "
        "it serves Chat Completions and Messages"
    )
    assert "mcqa.yaml:9 (mcqa_simple_agent.responses_api_agents.simple_agent" in str(misfit.where)
    assert "--model-type " in str(misfit.mend)
    assert "other_model" in str(misfit.mend)
    assert "some_model" not in str(misfit.mend)
    assert "or an agent that calls Chat Completions or Messages" in str(misfit.mend)


def test_an_agent_whose_environment_cannot_call_its_judge_cannot_work_either(
    tmp_path: Path,
) -> None:
    _root(tmp_path, called=None, served="('messages',)")
    app = tmp_path / "resources_servers" / "mcqa" / "app.py"
    app.write_text("class Server:\n    CALLED_DIALECTS = ('chat',)\n")
    judge = "{type: responses_api_models, name: policy_model}"
    config = f"mcqa: {{resources_servers: {{mcqa: {{judge: {judge}}}}}}}\n"

    misfits = load_run_config(ask(tmp_path, config=config)).misfits

    assert set(misfits) == {"mcqa", "mcqa_simple_agent"}
    assert misfits["mcqa_simple_agent"] is misfits["mcqa"]
    assert "mcqa calls Chat Completions" in misfits["mcqa"].what


@pytest.mark.parametrize(
    ("called", "served"),
    [
        (None, "('messages',)"),
        ("('responses',)", None),
        (None, None),
        ("('responses',)", "('chat', 'responses')"),
        ("()", "('chat',)"),
        ("NAMES", "('chat',)"),
    ],
)
def test_what_declares_nothing_or_fits_is_never_refused(
    tmp_path: Path, called: str | None, served: str | None
) -> None:
    assert load_run_config(ask(_root(tmp_path, called=called, served=served))).misfits == {}
