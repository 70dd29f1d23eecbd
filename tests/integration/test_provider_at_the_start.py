"""A provider that cannot be used at the start: what is wrong, where, and the mend that fits."""

import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
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


def _evaluate(folder: Path, url: str, *more: str) -> Ended:
    (folder / "rows.jsonl").write_text(json.dumps({"responses_create_params": {"input": "q"}}))
    (folder / "env.yaml").write_text(
        f"policy_model_name: m\npolicy_base_url: {url}\npolicy_api_key: sk-wrong-4711\n"
    )
    return gym(
        *("eval", "run", "--resources-server", "mcqa", "--model-type", "openai_model"),
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
