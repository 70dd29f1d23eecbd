"""When to try a call again, and how long to wait before. Numbers and headers in, seconds out. Pure.

What is worth another try: a connection that failed, silence, and the statuses by which a provider
says "later". Waits grow exponentially, are spread by `jitter` so that many callers do not come back
at once, and are never shorter than the provider asked for. Tries and total time are bounded; after
that the caller gets the last answer as it was.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

__all__ = ["RETRY_STATUSES", "RetryRule", "retry_after_s"]

RETRY_STATUSES = frozenset((429, 502, 503, 504, 529))

# A wait that the provider named is spread over this part of it, and at most so many seconds.
_SPREAD, _SPREAD_LIMIT_S = 0.1, 1.0


@dataclass(frozen=True, slots=True)
class RetryRule:
    """How often and how long. The defaults outlast ten seconds of refusals by a margin."""

    tries: int = 7
    """Tries in all; 1 never retries."""
    total_s: float = 60.0
    """No try begins later than this after the first one began."""
    first_wait_s: float = 0.5
    longest_wait_s: float = 20.0

    def retries(self, status: int) -> bool:
        """Say whether an answer with `status` is worth another try."""
        return status in RETRY_STATUSES

    def wait_s(
        self, *, tries: int, elapsed_s: float, jitter: float, asked_s: float | None = None
    ) -> float | None:
        """Return how long to wait before the next try, None when there is to be none.

        `tries` have been made, the first one `elapsed_s` ago; `jitter` is random in [0, 1];
        `asked_s` is the wait that the other side asked for.
        """
        if tries >= self.tries:
            return None
        # The exponent is bounded so that the power stays a float.
        longest = min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(tries - 1, 60))
        wait = longest * (0.5 + 0.5 * jitter)
        if asked_s is not None:
            # Who asks for a second each time would have used up every try within seconds.
            wait = max(wait, asked_s + jitter * min(asked_s * _SPREAD, _SPREAD_LIMIT_S))
        return wait if elapsed_s + wait <= self.total_s else None


def retry_after_s(headers: Iterable[tuple[bytes, bytes]], now: float) -> float | None:
    """Return the wait that response headers ask for, in seconds; None where they ask for none.

    Reads `retry-after-ms`, then `retry-after` as seconds or as an HTTP date, of which `now` (UTC
    Unix seconds) is subtracted; a date in the past is 0. What cannot be read asks for nothing.
    `x-should-retry: false` asks for a wait without end.
    """
    found = {name: value.decode("latin-1").strip() for name, value in headers if name in _NAMES}
    if found.get(b"x-should-retry", "").lower() == "false":
        return math.inf
    milliseconds = _number(found.get(b"retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = found.get(b"retry-after")
    seconds = _number(text)
    return _until(text, now) if seconds is None and text else seconds


_NAMES = frozenset((b"retry-after", b"retry-after-ms", b"x-should-retry"))


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _until(text: str, now: float) -> float | None:
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None
