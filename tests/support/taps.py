"""One call through a tap, message by message, as a shell would lead it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from nemo_gym.capture.tap import ExchangeTap, Request, Tapped, Verdict
from nemo_gym.wire.dialects import CHAT, Dialect

JSON = [(b"content-type", b"application/json")]
SSE = [(b"content-type", b"text/event-stream; charset=utf-8")]


@dataclass
class Led:
    """A call under way; every message takes 0.1 s."""

    dialect: Dialect = CHAT
    method: str = "POST"
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    limit: int = 10**9
    now: float = 100.0
    tapped: Tapped | None = None

    def __post_init__(self) -> None:
        request = Request(self.dialect, self.method, self.headers)
        self.tap = ExchangeTap(request, started_at=1.5e9, now=self.now, body_limit=self.limit)

    def _tick(self) -> float:
        self.now += 0.1
        return self.now

    def start(self, headers: list[tuple[bytes, bytes]], status: int = 200) -> Verdict:
        return self._seen(self.tap.response_start(status, headers, self._tick()))

    def send(self, body: bytes, *, more: bool = True) -> Verdict:
        now = self._tick()
        passes = self.tap.passes_by
        if more and passes is not None and passes(body):
            return self._seen(Verdict.SEND)
        return self._seen(self.tap.response_body(body, more, now))

    def send_all(self, pieces: Iterable[bytes]) -> list[Verdict]:
        return [self.send(piece) for piece in pieces]

    def _seen(self, verdict: Verdict) -> Verdict:
        if verdict is Verdict.COMMIT:
            self.tapped = self.tap.finish(self.now)
        return verdict

    def end(self, *, raised: bool = False) -> Tapped:
        """What was tapped, at the latest when the application ends."""
        if self.tapped is None:
            self.tapped = self.tap.finish(self._tick(), raised=raised)
        return self.tapped
