"""Settings as a read-only mapping that answers to attributes too, nested ones included."""

from collections.abc import Mapping
from typing import Any, NoReturn

__all__ = ["ReadOnlyTree"]


class ReadOnlyTree(dict[str, Any]):
    """A `dict` (so that JSON encoders and validators take it as one) that cannot be changed."""

    def __init__(self, mapping: Mapping[str, object]) -> None:
        super().__init__((str(key), _read_only(value)) for key, value in mapping.items())

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no setting {name!r}") from None

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise TypeError("the configuration of a run cannot be changed; copy it with dict(…)")

    __setitem__ = __delitem__ = __setattr__ = __delattr__ = _refuse
    clear = pop = popitem = setdefault = update = __ior__ = _refuse

    def __reduce__(self) -> tuple[type["ReadOnlyTree"], tuple[dict[str, Any]]]:
        return ReadOnlyTree, (dict(self),)

    def __copy__(self) -> "ReadOnlyTree":
        return self

    def __deepcopy__(self, _memo: object) -> "ReadOnlyTree":
        return self


def _read_only(value: object) -> object:
    if isinstance(value, ReadOnlyTree):
        return value
    if isinstance(value, Mapping):
        return ReadOnlyTree(value)
    if isinstance(value, list | tuple):
        return [_read_only(item) for item in value]
    return value
