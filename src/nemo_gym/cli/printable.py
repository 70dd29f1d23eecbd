r"""Text that others wrote in, text that is safe to print out. Pure.

What a model said may steer a terminal: colours, its title, the clipboard. Such characters are
shown, not obeyed: `\x1b` as Python writes it in text, `\u001b` in JSON, where it stays the same
value. So are those that turn the direction of text around, and halves of surrogate pairs, which
no encoding has.
"""

import re

__all__ = ["on_one_line", "printable", "printable_json"]

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Everything that Unicode calls a control but newline and tab; embeddings, overrides and isolates
(UAX #9), by which a line reads otherwise than it is; and halves of surrogate pairs."""


def printable(text: str) -> str:
    """Return `text` with newlines and tabs as they are, and every other control visible."""
    return _UNSAFE.sub(_visible, text)


def on_one_line(text: str) -> str:
    """Return `text` with every control visible but tabs; newlines, too."""
    return printable(text).replace("\n", r"\n")


def printable_json(document: str) -> str:
    """Return a JSON document of the same value without such characters."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def _visible(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
