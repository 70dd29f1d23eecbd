"""The process of the local model, played by small programs: every way in which it can fail."""

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable

import pytest

from nemo_gym.errors import ConfigMistake, ConnectFailed, ServerDied
from nemo_gym.responses_api_models.local_model.llama import Llama, LlamaSettings
from nemo_gym.telemetry.figures import snapshot
from support.llama import until

SETTINGS = LlamaSettings("/m.gguf", "m", 512, 1, 1, 4)
_ADDRESS = '{"address": "http://127.0.0.1:9"}'
WELL = f"import json, sys; json.loads(input()); print({_ADDRESS!r}, flush=True);"
STAY = WELL + "sys.stdin.read()"
LATE = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"


@pytest.fixture
async def play() -> AsyncIterator[Callable[..., Llama]]:
    played: list[Llama] = []

    def play(program: str, start_timeout_s: float = 20) -> Llama:
        command = [sys.executable, "-c", program]
        llama = Llama(SETTINGS, start_timeout_s=start_timeout_s, command=command)
        played.append(llama)
        return llama

    yield play
    for llama in played:
        await llama.stop()


async def test_callers_at_the_same_time_share_one_process(play: Callable[..., Llama]) -> None:
    llama = play(STAY)

    origins = await asyncio.gather(*(llama.origin() for _ in range(20)))

    assert set(origins) == {"http://127.0.0.1:9"}
    assert llama.starts == 1


async def test_while_it_runs_it_is_told_how_many_calls_it_works_on_at_once(
    play: Callable[..., Llama],
) -> None:
    before = snapshot("cell-0").model.local_slots
    llama = play(STAY)

    await llama.origin()

    assert snapshot("cell-0").model.local_slots == before + SETTINGS.slots
    await llama.stop()
    assert snapshot("cell-0").model.local_slots == before


@pytest.mark.parametrize(
    ("program", "error", "said"),
    [
        ("import sys; print('0.0 E cmn: bad', file=sys.stderr); sys.exit(3)", ServerDied,
         ["m: ended with exit code 3", "0.0 E cmn: bad"]),
        ("import os; os.abort()", ServerDied, ["m: was ended by SIGABRT"]),
        ("import sys; print('0.0 E cmn: magic', file=sys.stderr);"
         "print('{\"error\": \"no such thing\"}')", ConfigMistake,
         ["cannot serve /m.gguf: no such thing", "0.0 E cmn: magic", "pip install -U xllamacpp"]),
    ],
    ids=["exits", "aborts", "refuses"],
)  # fmt: skip
async def test_a_process_that_does_not_come_up_is_told_with_its_last_words(
    play: Callable[..., Llama], program: str, error: type[Exception], said: list[str]
) -> None:
    llama = play(program)

    with pytest.raises(error) as told:
        await llama.origin()

    assert all(words in str(told.value) for words in said)
    assert llama.pid is None


async def test_a_process_that_does_not_answer_in_time_is_ended(play: Callable[..., Llama]) -> None:
    llama = play("import sys; sys.stdin.read()", start_timeout_s=0.3)

    with pytest.raises(ServerDied, match=r"did not load within 0\.3 s"):
        await llama.origin()

    assert llama.pid is None


async def test_a_process_that_will_not_end_is_killed(play: Callable[..., Llama]) -> None:
    llama = play(WELL + LATE + "import time; time.sleep(600)")
    await llama.origin()
    began = time.monotonic()

    await llama.stop()

    assert llama.pid is None
    assert time.monotonic() - began < 5


async def test_a_start_that_is_cancelled_leaves_nothing(play: Callable[..., Llama]) -> None:
    llama = play("import sys; sys.stdin.read()")
    starting = asyncio.create_task(llama.origin())
    await until(lambda: llama.pid is not None)

    starting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await starting
    assert llama.pid is None


async def test_one_that_dies_again_and_again_is_given_up(play: Callable[..., Llama]) -> None:
    llama = play(WELL)
    for _ in range(4):
        await llama.origin()
        await until(lambda: llama.pid is None)

    with pytest.raises(ConnectFailed, match="the local model died 4 times"):
        await llama.origin()


async def test_nothing_is_started_after_the_end(play: Callable[..., Llama]) -> None:
    llama = play(STAY)
    await llama.stop()

    with pytest.raises(ConnectFailed, match="is stopping"):
        await llama.origin()

    assert llama.starts == 0


async def test_its_log_goes_to_the_log_by_severity(
    play: Callable[..., Llama], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    lines = "0.00.1 E srv: bad", "0.00.2 I srv: fine", "0.00.3 D srv: tiny", "something else"
    llama = play(f"import sys; print({chr(10).join(lines)!r}, file=sys.stderr);{STAY}")
    await llama.origin()

    await llama.stop()

    said = [(r.levelname, r.getMessage()) for r in caplog.records if "llama" in r.name]
    assert said == list(zip(["WARNING", "INFO", "DEBUG", "INFO"], lines, strict=True))
