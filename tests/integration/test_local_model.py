"""The local model for real: llama.cpp, the small model, its process."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.errors import ConfigMistake
from nemo_gym.responses_api_models.local_model.weights import BUILT_IN_ALIAS
from nemo_gym.servers.lifespan import AppLifespan, LifespanFailed
from nemo_gym.transport.base import Call
from nemo_gym.transport.in_process import InProcessTransport
from support.in_cell import InCell
from support.llama import gone, needs_llama, running, until

pytestmark = needs_llama

MESSAGES = [{"role": "user", "content": "Say hello."}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": MESSAGES, "max_output_tokens": 6},
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 6},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 6},
}
TERMINAL = {
    "/v1/responses": "event: response.completed\n",
    "/v1/chat/completions": "data: [DONE]\n",
    "/v1/messages": "event: message_stop\n",
}


async def test_three_dialects_whole_and_streamed_side_routes_and_no_path_of_a_file() -> None:
    async with running() as (cell, server):
        answers = []
        for path, body in BODIES.items():
            whole = await cell.client.post("policy_model", path, json={"model": "any", **body})
            stream = await cell.client.post("policy_model", path, json={**body, "stream": True})
            answers.append((await whole.json(), await stream.text()))
            assert (whole.status, stream.status) == (200, 200)
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert TERMINAL[path] in answers[-1][1]
        count = await cell.client.post(
            "policy_model", "/v1/messages/count_tokens", json={"messages": MESSAGES}
        )
        models = await cell.client.get("policy_model", "/v1/models")

        (responses, _), (chat, _), (messages, _) = answers
        assert responses["output"][0]["content"][0]["type"] == "output_text"
        assert responses["usage"]["output_tokens"] == 6
        assert chat["choices"][0]["message"]["content"]
        assert messages["content"][0]["type"] == "text"
        assert (await count.json())["input_tokens"] > 0
        assert (await models.json())["data"][0]["id"] == BUILT_IN_ALIAS
        assert {answer["model"] for answer, _ in answers} == {BUILT_IN_ALIAS}
        assert server.llama.settings.path not in json.dumps([answers, await models.json()])


async def test_what_llama_refuses_by_itself_is_taken() -> None:
    said = {"role": "assistant", "content": "Hello!"}
    body = {"input": [*MESSAGES, said, *MESSAGES], "tools": None, "max_output_tokens": 2}
    async with running() as (cell, _):
        reply = await cell.client.post("policy_model", "/v1/responses", json=body)

        assert reply.status == 200, await reply.text()


async def test_a_prompt_that_is_too_long_is_refused_with_both_lengths() -> None:
    async with running(context_size=256) as (cell, _):
        body = {"input": "word " * 500, "max_output_tokens": 2}
        reply = await cell.client.post("policy_model", "/v1/responses", json=body)

        assert reply.status == 400
        assert "exceeds the available context size (256 tokens)" in await reply.text()


async def test_the_loop_goes_on_while_the_model_loads_and_the_process_ends_with_the_server() -> (
    None
):
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    async with running() as (_, server):
        ticking.cancel()
        pid = server.llama.pid
        began = time.monotonic()
    assert pid is not None

    assert ticks >= 5
    assert gone(pid)
    assert time.monotonic() - began < 3


async def test_a_server_that_stops_while_the_model_writes_stops_in_time() -> None:
    async with running() as (cell, server):
        writing = {"prompt": "x", "input": "Count to ten thousand.", "max_output_tokens": 900}
        transport = InProcessTransport(cell.apps["policy_model"])
        body = json.dumps({**writing, "stream": True}).encode()
        reply = await transport.send(Call("POST", "/v1/responses", [], body))
        await reply.chunk()
        pid = server.llama.pid
        began = time.monotonic()
        await server.llama.stop()
        took = time.monotonic() - began
        await reply.aclose()

    assert pid is not None
    assert gone(pid)
    assert took < 2


async def test_a_client_that_goes_away_frees_its_slot() -> None:
    async with running(parallel=1, context_size=8000) as (cell, _):
        transport = InProcessTransport(cell.apps["policy_model"])
        endless = {"input": "Count to ten thousand.", "max_output_tokens": 7000, "stream": True}
        headers = [(b"content-type", b"application/json")]
        call = Call("POST", "/v1/responses", headers, json.dumps(endless).encode())
        reply = await transport.send(call)
        await reply.chunk()
        await reply.aclose()

        async with asyncio.timeout(30):
            after = await cell.client.post(
                "policy_model", "/v1/responses", json=BODIES["/v1/responses"]
            )
        assert after.status == 200


async def test_a_model_that_dies_is_named_and_started_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as (cell, server):
        first = server.llama.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: server.llama.pid is None)

        reply = await cell.client.post(
            "policy_model", "/v1/responses", json=BODIES["/v1/responses"]
        )

        assert reply.status == 200
        assert server.llama.starts == 2
        assert server.llama.pid not in {None, first}
    died = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert died == ["the local model was ended by SIGKILL (out of memory?)"]


async def test_a_file_that_only_looks_like_a_model_is_named_with_the_reason(
    tmp_path: Path,
) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + b"\x00" * 64)
    settings = {"entrypoint": "app.py", "model": str(path)}
    cell = InCell({"policy_model": {"responses_api_models": {"local_model": settings}}})

    with pytest.raises((ConfigMistake, LifespanFailed)) as failed:
        await AppLifespan(cell.apps["policy_model"]).start()

    mistake = failed.value.__cause__ or failed.value
    assert isinstance(mistake, ConfigMistake)
    assert f"llama.cpp cannot serve {path}" in str(mistake)
    await cell.aclose()


_OWNER = """
import asyncio, sys
from nemo_gym.responses_api_models.local_model.llama import Llama, LlamaSettings
from nemo_gym.responses_api_models.local_model.weights import find_weights

async def main():
    weights = find_weights(None)
    settings = LlamaSettings(str(weights.path), weights.alias, 512, 1, 1, 4)
    llama = Llama(settings, start_timeout_s=60)
    await llama.origin()
    print(llama.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_the_process_never_outlives_the_one_that_started_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert not gone(pid)
        owner.kill()
    deadline = time.monotonic() + 10
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.02)

    assert gone(pid)
