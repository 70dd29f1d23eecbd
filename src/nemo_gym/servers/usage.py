"""Usage of several calls added up, as plain JSON; what nobody reported stays unknown."""

from collections.abc import Mapping
from typing import Any

__all__ = ["add_usage"]


def add_usage(
    total: Mapping[str, Any] | None, more: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Return the sum of two usages, detail sections included; None when neither is known."""
    if total is None or more is None:
        known = more if total is None else total
        return None if known is None else dict(known)
    return {key: _add(total.get(key), more.get(key)) for key in dict.fromkeys([*total, *more])}


def _add(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return add_usage(one, other)
    if _is_number(one) and _is_number(other):
        return one + other
    return other


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
