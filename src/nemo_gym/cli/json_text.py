"""A plain value in, a JSON document for whoever asked for `--json` out, terminal-safe. Pure."""

import json

from nemo_gym.cli.printable import printable_json

__all__ = ["json_text"]


def json_text(value: object, *, indent: int | None = 2, ascii_only: bool = False) -> str:
    """Return `value` as JSON."""
    return printable_json(json.dumps(value, indent=indent, ensure_ascii=ascii_only))
