"""Times of calls as text. A stored number need not be a time: files are made by others too."""

from datetime import UTC, datetime

__all__ = ["utc_text"]


def utc_text(seconds: float | None, form: str) -> str | None:
    """Return UTC Unix seconds in a form of `strftime`; None where there is no such time."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return None
