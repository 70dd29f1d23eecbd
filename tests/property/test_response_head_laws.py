"""A response head means the same in whatever pieces it comes, and costs no more for the pieces."""

import asyncio
import time
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from nemo_gym.errors import ReplyInvalid
from nemo_gym.transport.connection import Connection
from nemo_gym.transport.reply import HttpReply

_LIMIT = 1 << 18
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LENGTH = b"content-length: 2\r\n"
_FIELD = b"x-a: some value of a header\r\n"


class _Socket(asyncio.Transport):
    """Takes everything, gives nothing."""

    def write(self, data: object) -> None:
        pass

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


def _waiting() -> tuple[Connection, asyncio.Future[HttpReply]]:
    connection = Connection("provider")
    connection.connection_made(_Socket())
    return connection, connection.begin(b"", b"", no_body=False, idle_s=None)


def _answered(pieces: list[bytes]) -> object:
    """Return what a caller gets of an answer that comes in these pieces."""

    async def call() -> object:
        connection, reply = _waiting()
        for piece in pieces:
            if not reply.done():
                connection.data_received(piece)
        if not reply.done():
            return "unfinished"
        error = reply.exception()
        return type(error) if error else (reply.result().status, sorted(reply.result().headers))

    return asyncio.run(call())


_ANSWERS = st.builds(
    lambda before, fields: b"".join((*before, b"HTTP/1.1 200 OK\r\n", *fields, b"\r\nok")),
    st.lists(st.just(_CONTINUE), max_size=2),
    st.lists(
        st.sampled_from([_FIELD, _LENGTH, b"Content-Length: 2, 2\r\n", b"content-length: 3\r\n"]),
        max_size=5,
    ),
)
_TWICE = _CONTINUE + b"HTTP/1.1 200 OK\r\n" + _LENGTH + _LENGTH + _FIELD + b"\r\nok"


@given(_ANSWERS, st.lists(st.integers(0, 200), max_size=6))
@example(_TWICE, list(range(200)))
@example(_TWICE, [len(_TWICE) - 5])
def test_a_head_means_the_same_in_whatever_pieces_it_comes(answer: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(answer), *(cut for cut in cuts if cut < len(answer))})
    pieces = [answer[begin:end] for begin, end in pairwise(places)]

    assert _answered(pieces) == _answered([answer])


async def test_what_came_of_a_head_is_not_copied_for_every_piece() -> None:
    connection, reply = _waiting()
    connection.data_received(b"HTTP/1.1 200 OK\r\n")
    so_far = connection._head_so_far
    for _ in range(100):
        connection.data_received(_FIELD)

    assert connection._head_so_far is so_far
    assert not reply.done()
    connection.data_received(b"\r\n")
    assert reply.done()


def test_a_head_that_repeats_its_length_is_not_searched_for_every_byte() -> None:
    head = b"HTTP/1.1 200 OK\r\n" + _LENGTH + _LENGTH + _FIELD * (_LIMIT // len(_FIELD) - 4)
    began = time.process_time()
    got = _answered([head[place : place + 1] for place in range(len(head))] + [b"\r\nok"])

    assert isinstance(got, tuple)
    assert (b"content-length", b"2") in got[1]
    assert time.process_time() - began < 10  # a search for every byte takes a minute


def test_a_head_without_an_end_is_refused() -> None:
    pieces = [b"HTTP/1.1 200 OK\r\n", *[_FIELD * 100] * 100]

    assert _answered(pieces) is ReplyInvalid
    assert _answered([pieces[0], _LENGTH, _LENGTH, *pieces[1:]]) is ReplyInvalid
