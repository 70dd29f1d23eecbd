"""Numbers of things in sentences."""

__all__ = ["counted"]


def counted(number: int, thing: str) -> str:
    """Return `1 call`, `0 calls`, `1,234 calls`; `thing` is a noun that takes an s."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
