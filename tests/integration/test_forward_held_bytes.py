"""A client leaves while the forwarder holds what has come: the bytes are in the row, and so is how
far the provider was."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.capture.store import CaptureStore
from nemo_gym.observability.model_calls import await_model_call_capture_quiescence
from support.capture_served import capture_served
from support.provider import Behaviour, Provider, serve_provider

KEY = "sk-the-servers-own-key"
CLIENTS_KEY = "sk-what-the-client-sent"


@pytest.fixture
async def provider() -> AsyncGenerator[Provider]:
    async with serve_provider() as served:
        yield served


@pytest.fixture
async def port(provider: Provider, tmp_path: Path) -> AsyncGenerator[int]:
    async with capture_served(provider.base_url, tmp_path, KEY) as port:
        yield port


async def row_of_one_who_leaves(provider: Provider, port: int, directory: Path) -> dict[str, Any]:
    """Ask, and leave once the provider has nothing more to say for the moment."""
    head = (
        f"POST /ng-rollout/0-0/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n"
        f"authorization: Bearer {CLIENTS_KEY}\r\n\r\n{{}}"
    )
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode())
    await provider.until(lambda counts: counts.in_flight == 1)
    await asyncio.sleep(0.1)  # half a body tells nobody that it has come
    writer.close()
    await provider.until(lambda counts: counts.in_flight == 0)
    assert await await_model_call_capture_quiescence("0-0", [directory])
    (row,) = CaptureStore(directory).read("0-0")
    assert isinstance(row, dict)
    return row


@pytest.mark.parametrize("status", [200, 400, 503])
@pytest.mark.parametrize("encoding", [None, "gzip"])
async def test_half_a_body_that_was_held_is_in_the_row(
    provider: Provider, port: int, tmp_path: Path, status: int, encoding: Any
) -> None:
    whole = json.dumps({"error": {"message": "half of this", "x": str(3**9000)}}).encode()
    provider.default = Behaviour(
        status=status, body=whole, encoding=encoding, piece_size=1000, cut_after=2, hang="mid_body"
    )
    row = await row_of_one_who_leaves(provider, port, tmp_path)

    notes = row["notes"]
    assert (row["error_category"], row["status_code"]) == ("cancelled", None)
    assert row["upstream_status_code"] == status
    assert notes["phase"] == "mid_stream"
    assert len(notes["upstream_body"]) > 900
    assert whole.decode().startswith(notes["upstream_body"])


async def test_a_head_that_was_held_alone_is_before_the_first_data(
    provider: Provider, port: int, tmp_path: Path
) -> None:
    provider.default = Behaviour(status=400, hang="after_head")
    row = await row_of_one_who_leaves(provider, port, tmp_path)

    assert row["notes"] == {"phase": "before_first_data"}
    assert row["upstream_status_code"] == 400


async def test_an_answer_given_up_for_another_try_is_told_and_the_next_one_had_not_begun(
    provider: Provider, port: int, tmp_path: Path
) -> None:
    provider.default = Behaviour(
        status=429, body=b'{"error":"slow down"}', headers=(("retry-after", "20"),), delay_s=0.01
    )
    row = await row_of_one_who_leaves(provider, port, tmp_path)

    assert row["notes"] == {"phase": "before_headers", "upstream_body": '{"error":"slow down"}'}
    assert row["upstream_status_code"] == 429


async def test_no_key_and_no_beginning_of_one_is_in_what_was_held(
    provider: Provider, port: int, tmp_path: Path
) -> None:
    said = f"not {KEY}, nor {CLIENTS_KEY}: {CLIENTS_KEY[:14]}".encode()
    provider.default = Behaviour(
        status=401, body=said * 2, piece_size=len(said), cut_after=1, hang="mid_body"
    )
    row = await row_of_one_who_leaves(provider, port, tmp_path)

    assert row["notes"]["upstream_body"] == "not ***, nor ***: ***"
