"""`gym capture serve` that is stopped while calls are under way, or has no provider."""

import asyncio
import http.client
import json
import os
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from nemo_gym.capture.middleware import model_call_stack
from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import parse_rollout_id
from nemo_gym.servers.serve import AppServer, bind_socket
from support.disks import FaultyDisk
from support.eval_servers import provider_process
from support.real_clients import capture_serve


def _ask(origin: str, stream: bool) -> tuple[int, bytes]:
    """Status and body; a body that broke off is what came of it."""
    asked = json.dumps({"model": "m", "messages": [], "stream": stream}).encode()
    request = urllib.request.Request(f"{origin}/v1/chat/completions", data=asked)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
            return answer.status, _until_it_breaks(answer)
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def _until_it_breaks(answer: Any) -> bytes:
    try:
        return bytes(answer.read())
    except OSError:
        return b""
    except http.client.IncompleteRead as cut:
        return cut.partial


def _is_under_way(store: CaptureStore) -> bool:
    return store.is_pending("others")


@pytest.mark.parametrize(
    ("moment", "stream", "status", "category"),
    [("before_head", False, 503, "upstream_error"), ("mid_body", True, 200, "stream_truncated")],
)
def test_calls_under_way_are_answered_and_kept_and_nobody_reads_a_traceback(
    tmp_path: Path, moment: str, stream: bool, status: int, category: str
) -> None:
    log, folder = tmp_path / "log", tmp_path / "calls"
    with ThreadPoolExecutor(1) as pool, provider_process(hang=moment) as upstream:
        with capture_serve(upstream, folder, log) as origin:
            asking = pool.submit(_ask, origin, stream)
            store = CaptureStore(folder)
            while not _is_under_way(store) and not asking.done():
                os.sched_yield()
        got, body = asking.result(20)

    (row,) = store.read(parse_rollout_id("others"))
    assert got == status
    assert isinstance(row, dict)
    assert (row["status_code"], row["error_category"]) == (status, category)
    if stream:
        assert row["notes"]["server_stopping"] is True
        assert "phase" not in row["notes"]
    else:
        assert json.loads(body)["error"]["code"] == "server_stopping"
        assert row["response"] == json.loads(body)
        assert row["response_source"] == "local"
        assert row["local_response_reason"] == "server_stopping"
    assert "Traceback" not in log.read_text()


async def test_who_waits_for_a_slow_disk_is_told_all_the_same(tmp_path: Path) -> None:
    disk, began = FaultyDisk(), asyncio.Event()
    store = CaptureStore(tmp_path, disk=disk)
    store.open_for_writing()
    disk.sync_delay_s = 0.8

    async def hangs(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            raise NotImplementedError
        began.set()
        await asyncio.Event().wait()

    sock = bind_socket("127.0.0.1", 0)
    server = AppServer(model_call_stack(hangs, store=store, model_ref_name="m"), sock, "slow")
    await server.start()
    reader, writer = await asyncio.open_connection(*sock.getsockname())
    writer.write(
        b"POST /ng-rollout/0-0/v1/responses HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n{}"
    )
    await began.wait()

    await server.stop(0.0, 5.0)

    answer = await asyncio.wait_for(reader.read(), 10)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "server_stopping"
    (row,) = store.read(parse_rollout_id("0-0"))
    assert isinstance(row, dict)
    assert row["local_response_reason"] == "server_stopping"
    writer.close()
    store.close()


def test_a_provider_that_does_not_answer_is_told_at_the_start_and_calls_are_taken_all_the_same(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    with capture_serve("http://127.0.0.1:9", tmp_path / "calls", log) as origin:
        with urllib.request.urlopen(f"{origin}/health", timeout=20) as answer:  # noqa: S310
            assert answer.status == 200
        while "warning: the provider does not answer" not in log.read_text():
            os.sched_yield()

    assert "127.0.0.1:9" in log.read_text()
