"""An agent and a model server that cannot understand each other: said before anything runs."""

import json
from pathlib import Path

import pytest

from support.eval_command import environ_of
from support.eval_servers import COUNTER, env_start
from support.gym_command import Ended, gym

CONFIG = (
    *("--resources-server", "mcqa", "--model-type", "anthropic_model", "--model", "m"),
    *("--model-url", "http://127.0.0.1:9", "--model-api-key", "k"),
)
RUN = (
    *("--input", "resources_servers/mcqa/data/example.jsonl", "--limit", "1"),
    *("--output", "results/x.jsonl"),
)
SAID = "mcqa_simple_agent calls Responses, which policy_model (anthropic_model) does not serve"
MEND = "use --model-type local_model or openai_model or vllm_model"


def _gym(folder: Path, *arguments: str) -> Ended:
    return gym(*arguments, cwd=folder, environ=environ_of(folder))


def test_a_run_that_could_only_fail_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    ended = _gym(tmp_path, "eval", "run", *CONFIG, "--agent", "mcqa_simple_agent", *RUN)

    assert ended.code == 2
    assert ended.out == ""
    assert SAID in ended.err
    assert "mcqa.yaml:" in ended.err
    assert MEND in ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_misfit_is_only_a_warning_where_nothing_is_run(tmp_path: Path) -> None:
    ended = _gym(tmp_path, "env", "validate", *CONFIG)
    told = json.loads(_gym(tmp_path, "env", "validate", "--json", *CONFIG).out)

    assert ended.code == 0
    assert ended.out.startswith("ok: 3 servers")
    assert f"warning: {SAID}" in ended.err
    assert told["ok"] is True
    assert [each["what"].startswith(SAID) for each in told["warnings"]] == [True]


def test_running_servers_tell_a_driver_which_of_their_agents_cannot_work(tmp_path: Path) -> None:
    with env_start(
        tmp_path, "http://127.0.0.1:9", "--resources-server", "mcqa", model_type="anthropic_model"
    ) as found:
        ended = _gym(
            tmp_path, "eval", "run", "--no-serve", found, "--agent", "mcqa_simple_agent", *RUN
        )

    assert ended.code == 2
    assert SAID in ended.err
    assert MEND in ended.err
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("model_type", ["openai_model", "vllm_model", "local_model"])
def test_model_servers_that_speak_responses_are_no_misfit(tmp_path: Path, model_type: str) -> None:
    ended = _gym(
        tmp_path,
        *("env", "validate", "--resources-server", "mcqa", "--resources-server", "counter"),
        *("--search-dir", COUNTER, "--model-type", model_type, "--model", "m"),
        *("--model-url", "http://127.0.0.1:9", "--model-api-key", "k"),
    )

    assert ended.code == 0, ended.err
    assert "warning" not in ended.err
