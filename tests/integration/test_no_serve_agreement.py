"""`gym eval run --no-serve` never answers for another model than was asked for."""

import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.eval_command import environ_of
from support.eval_servers import COUNTER, env_start, provider_process
from support.gym_command import Ended, gym

KEY = "k-of-the-servers-4711"


@dataclass(frozen=True, slots=True)
class _Servers:
    folder: Path
    origin: str
    port: str

    def evaluate(self, *more: str) -> Ended:
        return gym(
            *("eval", "run", "--no-serve", self.port, "--agent", "counter_agent"),
            *("--input", "rows.jsonl", "--output", "x.jsonl", "--overwrite", *more),
            cwd=self.folder,
            environ=environ_of(self.folder),
        )


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Generator[_Servers]:
    folder = tmp_path_factory.mktemp("servers")
    (folder / "rows.jsonl").write_text(json.dumps({"responses_create_params": {"input": "q"}}))
    asked = ("--resources-server", "mcqa", "--model-api-key", KEY)
    with provider_process() as origin, env_start(folder, origin, *asked) as port:
        yield _Servers(folder, origin, port)


DIFFERENT = {
    "model": (("--model", "some-other-model"), "policy_model_name is 'some-other-model' here"),
    "model-url": (("--model-url", "http://127.0.0.1:9/v1"), "policy_base_url is 'http://127.0"),
    "model-type": (
        ("--model-type", "local_model"),
        "policy_model is 'responses_api_models/local_model' here",
    ),
    "resources-server": (
        ("--resources-server", "workplace_tools", "--model-type", "openai_model"),
        "workplace_tools is 'resources_servers/workplace_tools' here",
    ),
    "key": (("--model-api-key", "k-of-mine-12345"), "policy_api_key is not the same here"),
    "setting": (
        ("++mcqa.resources_servers.mcqa.grading_mode=boxed",),
        "mcqa.resources_servers.mcqa.grading_mode is 'boxed' here and 'letter'",
    ),
    "workers": (("--workers", "3"), "--workers places servers that are started"),
    "processes": (("--one-process-each",), "--one-process-each places servers"),
}


@pytest.mark.parametrize(("asked", "said"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_what_the_running_servers_do_not_have_is_refused(
    servers: _Servers, asked: tuple[str, ...], said: str
) -> None:
    credentials = ("--model-url", servers.origin, "--model-api-key", KEY, "--model", "m")
    given = credentials if "--model-type" in asked else ()

    ended = servers.evaluate(*given, *asked)

    assert ended.code == 2, ended.err
    assert said in ended.err
    assert "where: " in ended.err
    assert "mend: " in ended.err
    assert KEY not in ended.err
    assert not (servers.folder / "x.jsonl").exists()


def test_what_the_running_servers_have_may_be_said_again(servers: _Servers, tmp_path: Path) -> None:
    ended = servers.evaluate(
        *("--resources-server", "mcqa", "--resources-server", "counter", "--search-dir", COUNTER),
        *("--model-type", "openai_model", "--model", "m", "--model-api-key", KEY),
        *("--model-url", servers.origin, "--output", str(tmp_path / "y.jsonl")),
        "++mcqa.resources_servers.mcqa.grading_mode=letter",
    )

    assert ended.code == 0, ended.err


@pytest.mark.parametrize("model", ["m", "another"])
def test_an_env_file_that_lies_there_is_refused_only_where_it_differs(
    servers: _Servers, tmp_path: Path, model: str
) -> None:
    env = servers.folder / "env.yaml"
    env.write_text(
        f"policy_base_url: {servers.origin}\npolicy_api_key: {KEY}\npolicy_model_name: {model}\n"
    )

    ended = servers.evaluate("--output", str(tmp_path / "y.jsonl"))
    env.unlink()

    if model == "m":
        assert ended.code == 0, ended.err
    else:
        assert ended.code == 2
        assert "policy_model_name is 'another' here and 'm' in the running servers" in ended.err
        assert "where: env.yaml:3 (policy_model_name)" in ended.err


def test_workers_and_a_process_for_each_server_exclude_each_other(tmp_path: Path) -> None:
    ended = gym(
        *("env", "start", "--workers", "3", "--one-process-each"),
        cwd=tmp_path,
        environ=environ_of(tmp_path),
    )

    assert ended.code == 2
    assert "--workers and --one-process-each exclude each other" in ended.err
