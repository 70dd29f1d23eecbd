"""`GET /metrics` of one process on a loopback port of its own, answered by a thread of its own."""

import logging
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from nemo_gym.telemetry.exposition import CONTENT_TYPE

__all__ = ["ScrapeServer"]

_logger = logging.getLogger(__name__)


class ScrapeServer:
    """Serves what `text` returns, until it is closed. The kernel chooses the port."""

    def __init__(self, text: Callable[[], str], host: str = "127.0.0.1") -> None:
        self._server = ThreadingHTTPServer((host, 0), _handler(text))
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_port}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="metrics endpoint", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop answering and give the port back."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(1.0)


def _handler(text: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self._answer(404, "text/plain", b"only /metrics is here\n")
                return
            try:
                body = text().encode()
            except Exception:  # telemetry never stops a server
                _logger.warning("metrics could not be collected", exc_info=True)
                self._answer(500, "text/plain", b"metrics could not be collected\n")
                return
            self._answer(200, CONTENT_TYPE, body)

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Keep scrapes out of the log."""

    return Handler
