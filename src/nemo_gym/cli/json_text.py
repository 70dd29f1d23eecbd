"""A plain value in, a JSON document for whoever asked for `--json` out. Pure.

The document is safe on a terminal, and no value is nested too deeply for it: from a hundred levels
on it is written by a loop, on one line, because an encoder that calls itself gives up and indenting
could take a thousand times the size of the value.
"""

import json
from collections.abc import Iterator

from nemo_gym.cli.printable import printable_json
from nemo_gym.wire.deep_json import pieces_by_loop
from nemo_gym.wire.json import is_array, is_object

__all__ = ["json_text"]

_MOST_LEVELS_INDENTED = 100


def json_text(value: object, *, indent: int | None = 2, ascii_only: bool = False) -> str:
    """Return `value` as JSON; one that is nested deeply is not indented."""
    if _is_deep(value):
        return printable_json("".join(pieces_by_loop(value, ascii_only=ascii_only)))
    return printable_json(json.dumps(value, indent=indent, ensure_ascii=ascii_only))


def _is_deep(value: object) -> bool:
    open_ones: list[Iterator[object]] = [iter((value,))]
    while open_ones:
        for inner in open_ones[-1]:
            if is_object(inner):
                open_ones.append(iter(inner.values()))
                break
            if is_array(inner):
                open_ones.append(iter(inner))
                break
        else:
            open_ones.pop()
        if len(open_ones) > _MOST_LEVELS_INDENTED:
            return True
    return False
