"""A mistyped name in, the one that was meant out. Text only."""

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

__all__ = ["did_you_mean", "nearest", "nearest_key", "typo_of"]


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the name of `known` most like `name`; None when none is alike."""
    by_folded = {_folded(each): each for each in sorted(known)}
    found = get_close_matches(_folded(name), by_folded, n=1, cutoff=cutoff)
    return by_folded[found[0]] if found else None


def nearest_key(dotted: str, known: Iterable[str]) -> str | None:
    """Return the dotted key most like `dotted`.

    A key that shares the last part wins over one that only looks alike, so that `mcqa.port` finds
    `mcqa.resources_servers.mcqa.port`.
    """
    names = sorted(known)
    first, last = dotted.partition(".")[0], dotted.rpartition(".")[2]
    if "." in dotted:
        under = [n for n in names if n.endswith(f".{last}") and n.startswith(f"{first}.")]
        if under:
            return max(under, key=lambda n: _likeness(dotted, n))
    return nearest(dotted, names, cutoff=0.75)


def typo_of(name: str, known: Iterable[str]) -> str | None:
    """Return the name of `known` that `name` is surely a slip for; None when it may be meant.

    `policy_api_key_2` or `max_steps_per_tool` is a name of its own, `observabilty_enabled` is not.
    """
    guess = nearest(name, known, cutoff=0.88)
    if guess is None or guess == name:
        return None
    longer, shorter = sorted((_folded(name), _folded(guess)), key=len, reverse=True)
    extra = longer.removeprefix(shorter) if longer.startswith(shorter) else ""
    own_name = extra[:1] == "_" or extra[:1].isdigit() or longer.endswith(f"_{shorter}")
    return None if own_name else guess


def did_you_mean(guess: str | None) -> str:
    """Return ` (did you mean 'x'?)`, or nothing without a guess."""
    return "" if guess is None else f" (did you mean {guess!r}?)"


def _folded(name: str) -> str:
    return name.lower().replace("-", "_")


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()
