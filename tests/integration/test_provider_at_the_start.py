"""A provider that cannot be used at the start: what is wrong, where, and the mend that fits."""

import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path

import pytest

from support.eval_command import environ_of
from support.gym_command import Ended, gym


class _Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def refusing() -> Generator[str]:
    with HTTPServer(("127.0.0.1", 0), _Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _evaluate(folder: Path, url: str, *more: str, model_type: str = "openai_model") -> Ended:
    (folder / "rows.jsonl").write_text(json.dumps({"responses_create_params": {"input": "q"}}))
    (folder / "env.yaml").write_text(
        f"policy_model_name: m\npolicy_base_url: {url}\npolicy_api_key: sk-wrong-4711\n"
    )
    return gym(
        *("eval", "run", "--resources-server", "mcqa", "--model-type", model_type),
        *("--agent", "mcqa_simple_agent", "--input", "rows.jsonl", "--output", "x.jsonl", *more),
        cwd=folder,
        environ=environ_of(folder),
    )


@pytest.mark.parametrize("placement", [(), ("--workers", "2")], ids=["a-cell", "processes"])
def test_a_key_that_is_refused_is_mended_by_another_key(
    tmp_path: Path, refusing: str, placement: tuple[str, ...]
) -> None:
    ended = _evaluate(tmp_path, refusing, *placement)

    assert ended.code == 2
    assert f"the provider at {refusing} refuses the key (401)" in ended.err
    assert "where: env.yaml:3 (policy_api_key)" in ended.err
    assert "--model-api-key KEY" in ended.err.partition("mend:")[2]
    assert "start the provider" not in ended.err
    assert "sk-wrong" not in ended.err


def test_a_provider_that_is_away_is_mended_by_starting_it_or_by_its_url(tmp_path: Path) -> None:
    ended = _evaluate(tmp_path, "http://127.0.0.1:9")

    assert ended.code == 2
    assert "the provider does not answer: http://127.0.0.1:9" in ended.err
    assert "where: env.yaml:2 (policy_base_url)" in ended.err
    assert "start the provider, or correct its URL" in ended.err.partition("mend:")[2]


class _Slow(BaseHTTPRequestHandler):
    """Is silent for as long as it is asked for its models, and answers calls."""

    over = threading.Event()

    def do_GET(self) -> None:
        self.over.wait(60)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(400)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize("placement", [(), ("--workers", "2")], ids=["a-cell", "processes"])
def test_a_provider_that_is_slow_to_list_its_models_is_warned_of_and_asked(
    tmp_path: Path, placement: tuple[str, ...]
) -> None:
    _Slow.over.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Slow) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        ended = _evaluate(tmp_path, url, *placement)
        _Slow.over.set()
        server.shutdown()
        thread.join()

    assert ended.code == 1, ended.err
    warning = "warning: policy_model: the provider is slow to answer"
    assert ended.err.count(warning) == 1
    assert "where: env.yaml:2 (policy_base_url)" in ended.err
    assert "does not answer" not in ended.err
    [failure] = (tmp_path / "x_failures.jsonl").read_text().splitlines()
    assert json.loads(failure)["_ng_failure_class"] == "model_error"


ODD = """
from typing import ClassVar

from nemo_gym.responses_api_models.openai_model.app import OpenAIModel


class OddModel(OpenAIModel):
    SERVED_DIALECTS: ClassVar = ("responses", "chat")

    async def provider_problem(self):
        return "policy_model: the licence has run out"
"""


def test_what_a_component_says_in_one_line_is_told_with_a_mend(tmp_path: Path) -> None:
    folder = tmp_path / "own" / "responses_api_models" / "odd_model"
    (folder / "configs").mkdir(parents=True)
    (folder / "app.py").write_text(ODD)
    (folder / "configs" / "odd_model.yaml").write_text(
        "policy_model: {responses_api_models: {odd_model: {entrypoint: app.py, "
        "openai_base_url: '${policy_base_url}'}}}\n"
    )
    ended = _evaluate(tmp_path, "http://127.0.0.1:9", "--search-dir", "own", model_type="odd_model")

    assert ended.code == 2
    assert "error: policy_model: the licence has run out\n" in ended.err
    assert "mend:  mend the settings of its model server" in ended.err
