"""Calls under way, as any process on the directory can see them, and no dead one leaves behind.

A rollout id in, a locked byte out. Two bytes a rollout: the first is held while a call is under
way, the second when a row was lost and no mark could be written, until one can or this process
ends. The locks are shared ones, so that many processes may claim one rollout, and are counted
here, since one descriptor holds a byte only once.
"""

import hashlib
import logging
import secrets
import threading
from collections.abc import Collection, Iterable
from functools import lru_cache

from nemo_gym.capture.layout import Layout
from nemo_gym.capture.row import Claim
from nemo_gym.files.disk import Disk
from nemo_gym.files.forks import OPENING
from nemo_gym.files.locks import says_no_locks
from nemo_gym.ids import RolloutId

__all__ = [
    "Claims",
    "ClaimsSeen",
    "HeldClaim",
    "is_claimed",
    "is_lost",
    "look_at_claims",
    "release_together",
]

logger = logging.getLogger(__name__)

# The kernel walks a list of locks for each file: 2 us a claim with 100 held, 147 with 10,000.
_SHARDS = 32
_UNDER_WAY, _LOST = 0, 1
# Rollouts use the bytes below.
_NOBODYS = 1 << 61


class Claims:
    """The claims of one process on one directory. Safe to use from several threads."""

    def __init__(self, layout: Layout, disk: Disk) -> None:
        self._layout = layout
        self._disk = disk
        self._mutex = threading.Lock()
        self._fds: list[int] = []
        self._counts: dict[RolloutId, int] = {}
        self._lost: set[RolloutId] = set()
        self._enabled = True

    def open(self) -> bool:
        """Open every shard now: later there may be no descriptor left.

        Returns whether locks work here; without them nothing is claimed. Raises `OSError`.
        """
        with self._mutex:
            self._open()
            self._enabled = self._locks_work()
            self._hold_all()
            return self._enabled

    def take(self, rollout_id: RolloutId) -> "HeldClaim":
        """Say that one more call of the rollout is under way. Never raises."""
        counts = self._counts
        with self._mutex:
            before = counts.get(rollout_id, 0)
            counts[rollout_id] = before + 1
            if before == 0:
                self._hold(rollout_id, _UNDER_WAY)
        return HeldClaim(self, rollout_id)

    def release(self, claims: Iterable["HeldClaim"]) -> None:
        """Say that these calls, which it said are under way, have ended. Never raises."""
        counts = self._counts
        with self._mutex:
            for claim in claims:
                if claim.holder is None:
                    continue
                claim.holder = None
                rollout_id = claim.rollout_id
                left = counts.pop(rollout_id, 0) - 1
                if left > 0:
                    counts[rollout_id] = left
                elif left == 0:
                    self._let_go(rollout_id, _UNDER_WAY)

    def hold_lost(self, rollout_id: RolloutId) -> None:
        """Say, until it is written down or this process ends, that the rollout lacks a row.

        Never raises.
        """
        with self._mutex:
            self._lost.add(rollout_id)
            self._hold(rollout_id, _LOST)

    def lost(self) -> Collection[RolloutId]:
        """Return the rollouts of which that is said."""
        if not self._lost:  # for each batch of rows
            return ()
        with self._mutex:
            return tuple(self._lost)

    def drop_lost(self, rollout_id: RolloutId) -> None:
        """Say it no more: it is written down, or the rollout was cleared. Never raises."""
        with self._mutex:
            if rollout_id in self._lost:
                self._lost.remove(rollout_id)
                self._let_go(rollout_id, _LOST)

    def are_gone(self) -> bool:
        """Say whether somebody removed what is held, so that nobody else can see it."""
        with self._mutex:
            try:
                return len(self._fds) < _SHARDS or not self._disk.state(self._fds[0]).links
            except OSError:  # what a file server says of a removed file
                return True

    def are_in_place(self) -> bool:
        """Say whether what is held is where others look for it; it may have been moved away."""
        with self._mutex:
            try:
                return bool(self._fds) and self._disk.is_at(self._fds[0], self._layout.claims / "0")
            except OSError:
                return False

    def reopen(self) -> None:
        """Hold everything anew, in files that others find: what was held is gone from there."""
        with self._mutex:
            self._close()
            self._open()
            self._hold_all()

    def close(self) -> None:
        """Close what is open, unless something is still to be held."""
        with self._mutex:
            if not self._counts and not self._lost:
                self._close()

    def forget(self) -> None:
        """In a forked child: close its copies, which would keep a dead parent's claims alive."""
        self._mutex = threading.Lock()
        self._close()
        self._counts.clear()
        self._lost.clear()

    def _open(self) -> None:
        self._disk.make_directory(self._layout.claims)
        for shard in range(len(self._fds), _SHARDS):
            with OPENING:
                self._fds.append(self._disk.open_read_write(self._layout.claims / str(shard)))

    def _close(self) -> None:
        while self._fds:
            self._disk.close(self._fds.pop())

    def _hold_all(self) -> None:
        for rollout_id in self._counts:
            self._hold(rollout_id, _UNDER_WAY)
        for rollout_id in self._lost:
            self._hold(rollout_id, _LOST)

    def _locks_work(self) -> bool:
        """Hold a byte that is nobody's and look at it from another descriptor."""
        disk, start = self._disk, _NOBODYS + secrets.randbelow(_NOBODYS)
        try:
            disk.locks.hold_range(self._fds[0], start)
            other = disk.open_read(self._layout.claims / "0")
            try:
                seen = disk.locks.is_held(other, start, 1)
            finally:
                disk.close(other)
            disk.locks.drop_range(self._fds[0], start)
        except OSError as error:
            if not says_no_locks(error):
                raise
            return False
        return seen

    def _hold(self, rollout_id: RolloutId, which: int) -> None:
        if not self._enabled:
            return
        shard, start = _place(rollout_id)
        try:
            self._disk.locks.hold_range(self._fds[shard], start + which)
        except (OSError, IndexError) as error:
            logger.error(  # noqa: TRY400 - the error is in the message
                "capture: no claim for rollout %s: %r", rollout_id, error
            )

    def _let_go(self, rollout_id: RolloutId, which: int) -> None:
        if not self._enabled:
            return
        shard, start = _place(rollout_id)
        try:
            self._disk.locks.drop_range(self._fds[shard], start + which)
        except (OSError, IndexError) as error:
            logger.error(  # noqa: TRY400 - the error is in the message
                "capture: stuck claim of %s: %r", rollout_id, error
            )


class HeldClaim:
    """One call under way."""

    __slots__ = ("holder", "rollout_id")

    def __init__(self, holder: Claims, rollout_id: RolloutId) -> None:
        self.holder: Claims | None = holder
        """None once it was released."""
        self.rollout_id = rollout_id

    def release(self) -> None:
        """Say that nothing more comes of this call; releasing twice is no error."""
        holder = self.holder
        if holder is not None:
            holder.release((self,))


def release_together(claims: Iterable[Claim]) -> None:
    """Release the claims of calls that ended together, those of one holder in one go."""
    by_holder: dict[Claims, list[HeldClaim]] = {}
    for claim in claims:
        if not isinstance(claim, HeldClaim):
            claim.release()
        elif claim.holder is not None:
            by_holder.setdefault(claim.holder, []).append(claim)
    for holder, held in by_holder.items():
        holder.release(held)


def is_claimed(layout: Layout, disk: Disk, rollout_id: RolloutId) -> bool:
    """Say whether any process, this one too, has a call of the rollout under way."""
    return _is_held(layout, disk, rollout_id, _UNDER_WAY)


class ClaimsSeen:
    """All claims on a directory at one moment, in whatever processes."""

    def __init__(self, held: Collection[tuple[int, int]] = ()) -> None:
        self._held = frozenset(held)

    def is_claimed(self, rollout_id: RolloutId) -> bool:
        """Say whether a call of the rollout was under way."""
        shard, start = _place(rollout_id)
        return (shard, start + _UNDER_WAY) in self._held

    def is_lost(self, rollout_id: RolloutId) -> bool:
        """Say whether a row of the rollout was lost and that could not be written down."""
        shard, start = _place(rollout_id)
        return (shard, start + _LOST) in self._held

    def claimed_beside(self, rollout_ids: Iterable[RolloutId]) -> int:
        """Return how many rollouts had a call under way, leaving out those named."""
        named = {(shard, start + _UNDER_WAY) for shard, start in map(_place, rollout_ids)}
        return sum(byte % 2 == _UNDER_WAY and (s, byte) not in named for s, byte in self._held)


def look_at_claims(layout: Layout, disk: Disk) -> ClaimsSeen:
    """Return what is claimed. Raises `OSError`."""
    held: set[tuple[int, int]] = set()
    for shard in range(_SHARDS):
        try:
            fd = disk.open_read(layout.claims / str(shard))
        except FileNotFoundError:
            continue
        try:
            for found in disk.locks.held_ranges(fd, 0, _NOBODYS):
                held.update((shard, byte) for byte in found)
        finally:
            disk.close(fd)
    return ClaimsSeen(held)


def is_lost(layout: Layout, disk: Disk, rollout_id: RolloutId) -> bool:
    """Say whether a living process lost a row of the rollout and could not write that down."""
    return _is_held(layout, disk, rollout_id, _LOST)


def _is_held(layout: Layout, disk: Disk, rollout_id: RolloutId, which: int) -> bool:
    # A descriptor of its own: a lock is never in the way of the descriptor that holds it.
    shard, start = _place(rollout_id)
    try:
        fd = disk.open_read(layout.claims / str(shard))
    except FileNotFoundError:
        return False
    try:
        return disk.locks.is_held(fd, start + which, 1)
    finally:
        disk.close(fd)


@lru_cache(maxsize=4096)
def _place(rollout_id: RolloutId) -> tuple[int, int]:
    """Return the shard and the first byte of a rollout; two rollouts meet once in 2**58 pairs."""
    digest = hashlib.blake2b(rollout_id.encode("ascii"), digest_size=8).digest()
    number = int.from_bytes(digest, "big")
    return number % _SHARDS, (number // _SHARDS) * 2
