"""The head server: the address book of a run. Values in, JSON answers out; secrets stay hidden.

Routes: `GET /health`, `GET /config` (resolved, secrets hidden), `GET /servers` (names, kinds,
addresses; which of them cannot work, and why; marks by which secrets are compared), `GET /figures`
(live counts of the run) and `GET /metrics` (Prometheus text of all processes, when telemetry
exports it; else how to switch it on, as 404). Everything else is 404, every other method 405.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass

from starlette.types import Receive, Scope, Send

from nemo_gym.errors import UserMistake
from nemo_gym.runtime.told import told

__all__ = ["HeadApp", "ServerEntry"]


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One server of the run as others find it."""

    name: str
    kind: str
    implementation: str
    addresses: tuple[str, ...]
    """Origins such as `http://127.0.0.1:40123`, one per instance."""


Answer = Callable[[], Awaitable[tuple[str, bytes]]]

_METRICS_OFF = (
    "metrics are off; telemetry.metrics.enabled=true on the command line that starts the servers "
    "switches them on"
)


class HeadApp:
    """A raw ASGI app over the run's address book."""

    def __init__(
        self,
        run_id: str,
        hidden_config: Mapping[str, object],
        servers: tuple[ServerEntry, ...],
        *,
        misfits: Mapping[str, UserMistake] | None = None,
        secret_marks: Mapping[str, str] | None = None,
        figures: Answer | None = None,
        metrics: Answer | None = None,
    ) -> None:
        self._answers: dict[str, Answer] = {
            "/health": _json({"status": "ok", "run_id": run_id}),
            "/config": _json(hidden_config),
            "/servers": _json(
                {
                    "run_id": run_id,
                    "servers": [asdict(s) for s in servers],
                    "misfits": {name: told(why) for name, why in (misfits or {}).items()},
                    "secret_marks": secret_marks,
                }
            ),
        }
        if figures is not None:
            self._answers["/figures"] = figures
        if metrics is not None:
            self._answers["/metrics"] = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; lifespan messages are acknowledged."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        answer = self._answers.get(scope["path"])
        if answer is None:
            message = _METRICS_OFF if scope["path"] == "/metrics" else "no such route"
            await _reply(send, 404, "application/json", _error(message, scope["path"]))
        elif scope["method"] not in {"GET", "HEAD"}:
            await _reply(send, 405, "application/json", _error("use GET", scope["method"]))
        else:
            content_type, body = await answer()
            await _reply(send, 200, content_type, body, head=scope["method"] == "HEAD")


def _json(value: object) -> Answer:
    body = json.dumps(value, default=str).encode()

    async def answer() -> tuple[str, bytes]:
        return "application/json", body

    return answer


def _error(message: str, detail: str) -> bytes:
    return json.dumps({"error": {"message": f"{message}: {detail}"}}).encode()


async def _reply(
    send: Send, status: int, content_type: str, body: bytes, *, head: bool = False
) -> None:
    headers = [
        (b"content-type", content_type.encode("ascii")),
        (b"content-length", str(len(body)).encode("ascii")),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return
