"""Descriptors that a forked child must not keep.

A lock of an open file lasts until the last copy of its descriptor is closed, so a child that
lives on after its parent was killed would hold the parent's locks. Whoever keeps such
descriptors registers here and is told, in the child, to close and forget them.
"""

import os
import threading
import weakref
from typing import Protocol

__all__ = ["OPENING", "Forgetful", "forget_in_children"]


class Forgetful(Protocol):
    """Keeps descriptors that belong to one process."""

    def forget(self) -> None:
        """In a forked child: close every copy; nothing of the parent's state is valid."""
        ...


OPENING = threading.RLock()
"""Held from opening a descriptor until its keeper knows of it: no fork happens in between."""

_keepers: "weakref.WeakSet[Forgetful]" = weakref.WeakSet()


def forget_in_children(keeper: Forgetful) -> None:
    """Have `keeper.forget()` called in every child forked from now on, while it exists."""
    with OPENING:
        _keepers.add(keeper)


def _after_fork_in_child() -> None:
    keepers = list(_keepers)
    OPENING.release()
    for keeper in keepers:
        keeper.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=OPENING.acquire,
        after_in_parent=OPENING.release,
        after_in_child=_after_fork_in_child,
    )
