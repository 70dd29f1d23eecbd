r"""The grammar of `${…}`: text in, its parts out. Pure.

`${a.b}` names a key from the root, `${.x}` one beside the value, `${..x}` one level up;
`${oc.env:VAR,default}` asks a resolver. References nest. `\${` is a literal `${`.
"""

import re
from dataclasses import dataclass

__all__ = ["BadReference", "KeyReference", "Parts", "ResolverCall", "parse_text"]


class BadReference(ValueError):
    """Text with `${` that cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class KeyReference:
    """`${a.b}`: the parts of the path, where a reference may stand inside."""

    path: "Parts"


@dataclass(frozen=True, slots=True)
class ResolverCall:
    """`${name:argument,argument}`."""

    name: str
    arguments: tuple["Parts", ...]
    quoted: tuple[bool, ...]
    """Which arguments stood in quotes: those are text whatever they look like."""


Parts = tuple["str | KeyReference | ResolverCall", ...]

_ESCAPE = re.compile(r"(\\*)\$\{")
_RESOLVER = re.compile(
    r"\s*([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)\s*:(.*)", re.DOTALL
)


def parse_text(text: str) -> Parts:
    """Return the parts of `text`: literal text and references, in order; raises `BadReference`."""
    parts: list[str | KeyReference | ResolverCall] = []
    literal = ""
    position = 0
    while found := _ESCAPE.search(text, position):
        slashes = len(found[1])
        literal += text[position : found.start()] + "\\" * (slashes // 2)
        if slashes % 2:
            literal += "${"
            position = found.end()
            continue
        if literal:
            parts.append(literal)
            literal = ""
        end = _closing(text, found.end())
        parts.append(_reference(text[found.end() : end]))
        position = end + 1
    literal += text[position:]
    return (*parts, literal) if literal or not parts else tuple(parts)


def _reference(inner: str) -> KeyReference | ResolverCall:
    call = _RESOLVER.fullmatch(inner)
    if call is None:
        key = inner.strip()
        if not key:
            raise BadReference("'${}' names no key")
        return KeyReference(parse_text(key))
    pieces = _split(call[2]) if call[2].strip() else []
    unquoted = [_unquoted(piece) for piece in pieces]
    return ResolverCall(
        call[1],
        tuple(parse_text(text) for text, _ in unquoted),
        tuple(quoted for _, quoted in unquoted),
    )


def _closing(text: str, start: int) -> int:
    """Return where the `}` is that closes the `${` before `start`."""
    depth, quote = 1, ""
    for position in range(start, len(text)):
        char = text[position]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return position
    raise BadReference("a '${' has no closing '}'")


def _split(text: str) -> list[str]:
    """Split at commas outside quotes, braces and brackets."""
    pieces, depth, quote, begin = [], 0, "", 0
    for position, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and depth == 0:
            pieces.append(text[begin:position])
            begin = position + 1
    return [*pieces, text[begin:]]


def _unquoted(piece: str) -> tuple[str, bool]:
    piece = piece.strip()
    quoted = len(piece) >= 2 and piece[0] == piece[-1] and piece[0] in "'\""
    return (piece[1:-1], True) if quoted else (piece, False)
