"""Recorded model traffic, where the environment variable NEMO_GYM_CORPUS names a folder of it."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.wire.dialects import Dialect, dialect_named

ROOT = os.environ.get("NEMO_GYM_CORPUS")

needs_corpus = pytest.mark.skipif(ROOT is None, reason="NEMO_GYM_CORPUS names no folder")


@dataclass(frozen=True)
class Recording:
    """One recorded response, with what the official SDKs made of it."""

    name: str
    dialect: Dialect
    body: bytes
    meta: dict[str, Any]
    expected: Any
    items: Any

    @property
    def use(self) -> str:
        """How the expected object is to be used."""
        return str(self.meta["expected"]["use"])

    def as_received(self) -> list[bytes]:
        """The body in the pieces in which it came over the network; whole where not recorded."""
        pieces, start = [], 0
        for length in self.meta.get("chunk_lengths") or [len(self.body)]:
            pieces.append(self.body[start : start + length])
            start += length
        return pieces


def streams(*dialects: str) -> list[Recording]:
    """Every recorded stream of these dialects (all, when none is named)."""
    return [
        recording
        for dialect in dialects or ("responses", "chat", "messages")
        for recording in _recordings(dialect, "stream", "sse")
    ]


def json_bodies() -> list[Recording]:
    """Every recorded response that was not streamed."""
    return [r for d in ("responses", "chat", "messages") for r in _recordings(d, "json", "json")]


def _recordings(dialect: str, kind: str, ending: str) -> Iterator[Recording]:
    if ROOT is None:
        return
    spoken = dialect_named(dialect)
    assert spoken is not None
    for path in sorted((Path(ROOT) / dialect / kind).glob(f"*.response.{ending}")):
        base = path.name.removesuffix(f".response.{ending}")
        yield Recording(
            base,
            spoken,
            path.read_bytes(),
            _json(path.with_name(f"{base}.meta.json")),
            _json(path.with_name(f"{base}.expected.json")),
            _json(path.with_name(f"{base}.expected-items.json")),
        )


def _json(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None
