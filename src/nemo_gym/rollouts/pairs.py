"""A small number for each `(task, rollout)` pair: a byte a pair, whatever the run's length.

This is what a run keeps of finished rollouts. Pairs may be sparse in both indices. No I/O.
"""

__all__ = ["PairTable"]

_PAGE = 4096
_MOST = 255


class PairTable:
    """Numbers from 0 to 255 by `(task, rollout)`; 0 for a pair never set."""

    def __init__(self) -> None:
        self._pages: dict[tuple[int, int], bytearray] = {}

    def __getitem__(self, pair: tuple[int, int]) -> int:
        task, rollout = pair
        page = self._pages.get((rollout, task // _PAGE))
        offset = task % _PAGE
        return page[offset] if page is not None and offset < len(page) else 0

    def __setitem__(self, pair: tuple[int, int], value: int) -> None:
        """Set the number of a pair; what is above 255 is kept as 255."""
        task, rollout = pair
        page = self._pages.setdefault((rollout, task // _PAGE), bytearray())
        offset = task % _PAGE
        if offset >= len(page):
            page.extend(bytes(offset + 1 - len(page)))
        page[offset] = min(value, _MOST)
