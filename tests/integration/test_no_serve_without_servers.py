"""What `gym eval run --no-serve` says where no servers run."""

import json
import socket
from pathlib import Path

from support.eval_command import environ_of
from support.gym_command import gym


def test_the_address_that_does_not_answer_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"responses_create_params": {"input": "q"}}))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    ended = gym(
        *("eval", "run", "--no-serve", "--agent", "a", "--input", "rows.jsonl"),
        *("--output", "x.jsonl", f"++head_server.port={port}"),
        cwd=tmp_path,
        environ=environ_of(tmp_path),
    )

    assert ended.code == 2
    assert ended.err.count(f"http://127.0.0.1:{port}") == 1
    assert "Connection refused" in ended.err
