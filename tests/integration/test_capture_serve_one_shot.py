"""One-shot clients before the real `gym capture serve`: a connection a call, hung up at once.

The provider says its last bytes late, so a client that has read enough is gone before the end.
"""

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from nemo_gym.capture.store import CaptureStore
from support.provider import Behaviour, Provider
from support.real_clients import capture_serve, outside_world
from support.served import read_until

KEY = "sk-one-shot-6180339887"
ASKED: Any = [{"role": "user", "content": "hi"}]
CHAT = {"model": "m", "messages": ASKED}


def _post(origin: str, body: dict[str, Any]) -> urllib.request.Request:
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    return urllib.request.Request(  # noqa: S310
        f"{origin}/v1/chat/completions", data=json.dumps(body).encode(), headers=headers
    )


def with_urllib(origin: str) -> None:
    with urllib.request.urlopen(_post(origin, CHAT), timeout=30) as response:  # noqa: S310
        assert json.load(response)["choices"]


def with_curl(origin: str) -> None:
    done = subprocess.run(
        [
            *("curl", "-sS", "-H", f"x-api-key: {KEY}"),
            *("-d", json.dumps(CHAT), f"{origin}/v1/chat/completions"),
        ],
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert json.loads(done.stdout)["choices"]


def with_openai_stream(origin: str) -> None:
    with openai.OpenAI(base_url=f"{origin}/v1", api_key=KEY, max_retries=0) as client:
        stream = client.responses.create(model="m", input="hi", stream=True)
        assert "response.completed" in [event.type for event in stream]


def with_anthropic_stream(origin: str) -> None:
    with (
        anthropic.Anthropic(base_url=origin, api_key=KEY, max_retries=0) as client,
        client.messages.stream(model="m", max_tokens=9, messages=ASKED) as stream,
    ):
        assert stream.get_final_message().stop_reason == "end_turn"


def gone_at_the_terminal_line(origin: str) -> None:
    read_until(
        int(origin.rpartition(":")[2]),
        "/v1/messages",
        "POST",
        lambda _, data: b"event: message_stop\n" in data,
        b'{"model":"m","stream":true,"messages":[]}',
    )


CALLERS: list[tuple[Callable[[str], None], int]] = [
    (with_urllib, 60),
    (with_curl, 40),
    (with_openai_stream, 30),
    (with_anthropic_stream, 30),
    (gone_at_the_terminal_line, 40),
]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
def test_200_calls_by_one_shot_clients_are_200_rows_without_their_key(tmp_path: Path) -> None:
    calls = [caller for caller, times in CALLERS for _ in range(times)]
    provider = Provider(default=Behaviour(piece_size=400, piece_delay_s=0.001))
    captures, log = tmp_path / "captures", tmp_path / "log"
    with (
        outside_world(provider) as world,
        capture_serve(world.provider.base_url, captures, log) as origin,
        ThreadPoolExecutor(8) as pool,
    ):
        for done in [pool.submit(call, origin) for call in calls]:
            done.result()
        # Read while the server lives: nothing is left to be written when it ends.
        rows = list(CaptureStore(captures).read("others"))

    assert len(rows) == len(calls) == 200
    assert {row["error_category"] for row in rows if isinstance(row, dict)} == {None}
    stored = (captures / "others.capture.jsonl").read_text()
    assert KEY not in stored + log.read_text()
