"""A few texts on a loopback port of their own, answered by a thread of its own.

Comes in: a path and the function that makes its text. The kernel chooses the port.
"""

import logging
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["Route", "ScrapeServer"]

_logger = logging.getLogger(__name__)

Route = tuple[str, Callable[[], bytes]]
"""Content type of an answer, and what makes its body."""


class ScrapeServer:
    """Answers `GET` and `HEAD` on its routes until it is closed."""

    def __init__(self, routes: Mapping[str, Route], host: str = "127.0.0.1") -> None:
        self._server = _Server((host, 0), _handler(routes))
        self.url = f"http://{host}:{self._server.server_port}"
        """Origin; a route's path follows."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="scrape server", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop answering and give the port back."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(1.0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Log what ended one request; the terminal, where it would go, belongs to the run."""
        error = sys.exception()
        if isinstance(error, OSError):
            # Whoever asked broke off or went away, as scrapers at their time limit do.
            _logger.debug("the answer to %s was not taken: %r", client_address, error)
        else:
            _logger.warning("a request could not be answered: %r", error)


def _handler(routes: Mapping[str, Route]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            route = routes.get(self.path.partition("?")[0])
            if route is None:
                self._answer(404, "text/plain", f"here are {' '.join(routes)}\n".encode())
                return
            kind, make = route
            try:
                body = make()
            except Exception:  # telemetry never stops a server
                _logger.warning("%s could not be answered", self.path, exc_info=True)
                self._answer(500, "text/plain", b"this could not be collected\n")
                return
            self._answer(200, kind, body)

        do_HEAD = do_GET  # noqa: N815 - the name that is called

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Keep scrapes out of the log."""

    return Handler
