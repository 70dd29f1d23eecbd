"""What a listing says of a capture file is what a reader finds in it, whatever is in it."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.jsonl import Damaged
from nemo_gym.observability.repair import repair_rollout
from nemo_gym.observability.summaries import summarize

_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["usage", "id", "x_groq", "é"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_KEYS = ["model_call_id", "dialect", "error_category", "completed_at", "request", "response"]
_ROWS = st.dictionaries(st.sampled_from(_KEYS), _VALUE, max_size=6).map(
    lambda row: json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass")
)


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    """Bytes of a capture file: rows, some of them cut or with bytes changed."""
    lines = []
    for line in draw(st.lists(_ROWS, max_size=4)):
        cut = draw(st.integers(0, len(line))) if draw(st.booleans()) else len(line)
        damaged = bytearray(line[:cut])
        if damaged and draw(st.booleans()):
            damaged[draw(st.integers(0, len(damaged) - 1))] = draw(st.integers(0, 255))
        lines.append(bytes(damaged))
    return b"\n".join(lines) + draw(st.sampled_from([b"", b"\n"]))


@settings(max_examples=400)
@given(contents())
def test_a_listing_counts_what_a_reader_finds_and_a_repair_loses_no_row(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "0-0.capture.jsonl"
        path.write_bytes(data)
        store = CaptureStore(folder)
        items = store.read("0-0")
        rows = [item for item in items if not isinstance(item, Damaged)]

        summary = summarize(store, "0-0")
        repair_rollout(store, "0-0")
        kept = store.read("0-0")

        assert (summary.calls, summary.damaged) == (len(rows), len(items) - len(rows))
        assert repr(kept) == repr(rows)
