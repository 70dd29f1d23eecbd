"""The port that a process is scraped at: over real sockets, with scrapers that break off."""

import http.client
import logging
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from nemo_gym.telemetry.scrape_server import ScrapeServer

BODY = b"up 1\n" * 100


class Scraped:
    """A server with one route, whose answer can be held back."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.server = ScrapeServer({"/metrics": ("text/plain", self._made)})
        self.address = ("127.0.0.1", int(self.server.url.rpartition(":")[2]))

    def _made(self) -> bytes:
        self.asked.release()
        self.may_answer.wait(10)
        return BODY

    def ask(self, method: str, path: str = "/metrics") -> tuple[int, str | None, bytes]:
        """Return status, length as it is said, and body."""
        with closing(http.client.HTTPConnection(*self.address, timeout=5)) as connection:
            connection.request(method, path)
            reply = connection.getresponse()
            return reply.status, reply.headers["content-length"], reply.read()

    def reset(self, sent: bytes) -> None:
        """Send `sent` and break off at once, as a scraper that is killed does."""
        with socket.create_connection(self.address) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(sent)
            if sent.endswith(b"\r\n\r\n"):
                assert self.asked.acquire(timeout=5)


@pytest.fixture
def scraped() -> Iterator[Scraped]:
    made = Scraped()
    yield made
    made.server.close()


def _settled() -> None:
    """Wait until no request is under way: each has a thread."""
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join(5)


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /met", b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n"],
    ids=["at-once", "in-the-request", "before-the-answer"],
)
def test_a_scraper_that_breaks_off_says_nothing_on_the_terminal(
    scraped: Scraped,
    sent: bytes,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    scraped.may_answer.clear()
    scraped.reset(sent)
    scraped.may_answer.set()
    status, _, body = scraped.ask("GET")
    _settled()

    assert (status, body) == (200, BODY)
    assert capfd.readouterr() == ("", "")
    assert [each for each in caplog.records if each.levelno > logging.DEBUG] == []


def test_head_answers_as_get_does_without_a_body(scraped: Scraped) -> None:
    assert scraped.ask("HEAD") == (200, str(len(BODY)), b"")
    assert scraped.ask("HEAD", "/elsewhere")[0] == 404
