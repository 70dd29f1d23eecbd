"""What a listing says of a capture file is what a reader finds in it, whatever is in it."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.jsonl import Damaged
from nemo_gym.observability.model_calls import aggregate_model_call_metrics
from nemo_gym.observability.repair import repair_rollout
from nemo_gym.observability.salvage import rows_within
from nemo_gym.observability.summaries import summarize, summarize_all

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


_PAYLOAD = st.dictionaries(st.text(max_size=4), st.text(max_size=8) | st.integers(), max_size=3)
_WHOLE_ROWS = st.builds(
    lambda number, request, response: json.dumps(
        {"model_call_id": f"c{number}", "dialect": "chat", "status_code": 200}
        | {"request": request, "response": response},
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode(),
    st.integers(),
    _PAYLOAD,
    st.none() | _PAYLOAD,
)


@given(st.lists(st.tuples(st.binary(max_size=8) | st.just(b"\0" * 40), _WHOLE_ROWS), max_size=4))
def test_rows_without_line_ends_are_found_whatever_lies_between(
    pieces: list[tuple[bytes, bytes]],
) -> None:
    line = b"".join(damage.replace(b"\n", b" ") + row for damage, row in pieces)

    assert [line[start:end] for start, end in rows_within(line)] == [row for _, row in pieces]


@given(_WHOLE_ROWS, _WHOLE_ROWS, st.data())
def test_a_row_behind_half_a_row_is_found_and_the_half_is_none(
    torn: bytes, row: bytes, data: st.DataObject
) -> None:
    half = torn[: data.draw(st.integers(0, len(torn) - 1))]

    assert list(rows_within(half + row)) == [(len(half), len(half + row))]


_USAGE = st.none() | st.fixed_dictionaries(
    {"prompt_tokens": st.integers(0, 9), "completion_tokens": st.integers(0, 9)},
    optional={"cache_read_input_tokens": st.integers(0, 9), "input_tokens": st.integers(0, 9)},
)
_ANSWERS = st.fixed_dictionaries(
    {},
    optional={
        "usage": _USAGE,
        "x_groq": st.none() | st.fixed_dictionaries({"usage": _USAGE}),
        "choices": st.none() | st.lists(st.fixed_dictionaries({"usage": _USAGE}), max_size=2),
    },
)


@given(st.lists(st.tuples(st.sampled_from(["chat", "messages", "responses"]), _ANSWERS)))
def test_a_listing_counts_the_tokens_that_the_records_have(
    calls: list[tuple[str, dict[str, object]]],
) -> None:
    with TemporaryDirectory() as folder:
        rows = [{"dialect": dialect, "response": answer} for dialect, answer in calls]
        data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        (Path(folder) / "0-0.capture.jsonl").write_bytes(data)
        store = CaptureStore(folder)

        summary = summarize(store, "0-0")

        totals = aggregate_model_call_metrics(store, "0-0")
        assert (summary.tokens_in, summary.tokens_out) == (
            totals["tokens_in"],
            totals["tokens_out"],
        )


_TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


def _long_row(number: int, said: str, shape: str) -> bytes:
    """A row of some 20 KB as a server writes it, of one of several shapes."""
    messages: list[object] = [{"role": "user", "content": said * (20_000 // len(said))}]
    if shape == "quoting":
        messages += [{"a": 1, "response": {"usage": {"prompt_tokens": 7}}}, {"model_call_id": "q"}]
    response = None if shape == "no answer" else {"id": said, "usage": {"prompt_tokens": number}}
    if shape == "no usage":
        response = {"id": said}
    head = {"model_call_id": f"c{number}", "dialect": "chat", "completed_at": float(number)}
    row = head | {"error_category": None, "request": {"messages": messages}, "response": response}
    if shape == "with notes":
        row["notes"] = {"truncated_at": 3, "response": {}}
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


_SHAPES = ["plain", "quoting", "no usage", "no answer", "with notes"]
_LONG_ROWS = st.builds(_long_row, st.integers(0, 9), _TEXT, st.sampled_from(_SHAPES))


@st.composite
def _as_disks_leave_them(draw: st.DrawFn) -> bytes:
    """Long rows: whole, torn, without the end between two of them, or with zeros for a block."""
    parts = []
    for row in draw(st.lists(_LONG_ROWS, min_size=1, max_size=3)):
        kind = draw(st.sampled_from(["whole", "torn", "fused", "zeros", "torn and fused"]))
        data = row
        if "torn" in kind:
            data = row[: draw(st.integers(1, len(row) - 1))]
        elif kind == "zeros":
            start = draw(st.integers(0, len(row) // 512)) * 512
            data = row[:start] + b"\0" * len(row[start : start + 512]) + row[start + 512 :]
        parts += [data, b"" if "fused" in kind else b"\n"]
    return b"".join(parts)


@settings(max_examples=300)
@given(_as_disks_leave_them())
def test_a_listing_that_skips_requests_finds_what_a_reader_finds(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "0-0.capture.jsonl").write_bytes(data)
        store = CaptureStore(folder)
        items = store.read("0-0")

        (listed,) = summarize_all(store)

        rows = [item for item in items if not isinstance(item, Damaged)]
        assert (listed.calls, listed.damaged) == (len(rows), len(items) - len(rows))
        assert listed == summarize(store, "0-0")
