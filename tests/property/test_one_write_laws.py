"""Writes that are put together: the same bytes in the same order, none later than the next turn."""

import asyncio
from collections.abc import Iterable

from hypothesis import example, given
from hypothesis import strategies as st

from nemo_gym.servers.one_write import OneWrite


class _Transport(asyncio.Transport):
    """Remembers what was written, and when it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0


HEADS = [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"]
BODIES = [b"", b"x", b"HTTP/1.", b"HTTP", b"y" * 40_000]
TURN = "turn"
ACTS = st.one_of(st.sampled_from([*HEADS, *BODIES]), st.sampled_from([TURN]))


@given(st.lists(ACTS, max_size=12), st.booleans(), st.sampled_from([bytes, bytearray, memoryview]))
@example([HEADS[0], BODIES[4]], False, bytes)
def test_the_same_bytes_in_order_and_all_of_them_by_the_next_turn(
    acts: list[bytes | str], closes: bool, kind: type[bytes]
) -> None:
    inner = _Transport()

    async def act() -> None:
        writer = OneWrite(inner, asyncio.get_running_loop())
        expected = b""
        for one in acts:
            if isinstance(one, bytes):
                writer.write(kind(one))
                expected += one
                assert writer.get_write_buffer_size() == len(expected) - len(sent())
            else:
                await asyncio.sleep(0)
                assert sent() == expected
            assert expected.startswith(sent())
        if closes:
            writer.close()
        else:
            await asyncio.sleep(0)
        assert sent() == expected
        assert inner.closed is closes

    def sent() -> bytes:
        return b"".join(inner.written)

    asyncio.run(act())


@given(st.sampled_from(HEADS), st.sampled_from([b"x", b"y" * 40_000]))
def test_a_head_and_what_follows_it_are_one_write(head: bytes, body: bytes) -> None:
    inner = _Transport()

    async def act() -> None:
        writer = OneWrite(inner, asyncio.get_running_loop())
        writer.write(head)
        writer.write(body)
        await asyncio.sleep(0)

    asyncio.run(act())
    assert inner.written == [head + body]


def test_what_waits_is_not_written_to_a_connection_that_is_gone() -> None:
    inner = _Transport()

    async def act() -> None:
        writer = OneWrite(inner, asyncio.get_running_loop())
        writer.write(HEADS[0])
        inner.close()
        await asyncio.sleep(0)

    asyncio.run(act())
    assert inner.written == []
