"""Files of JSON lines: what holds for every row and every place at which a writer was killed."""

import json
import threading
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.files.jsonl import Damaged, JsonlAppender, read_jsonl, read_jsonl_objects

ROWS = st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3), max_size=6)


def encode(row: dict[str, str]) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode()


@given(ROWS)
def test_every_row_comes_back_as_it_went_in(rows: list[dict[str, str]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "made" / "rows.jsonl"
        with JsonlAppender(path) as sink:
            for row in rows:
                sink.append(encode(row))

        assert [line for _, line in read_jsonl(path)] == [encode(row) for row in rows]
        assert [row for _, row in read_jsonl_objects(path)] == rows


@given(ROWS.filter(len), st.data())
def test_a_cut_costs_at_most_one_line_and_the_next_append_is_whole(
    rows: list[dict[str, str]], data: st.DataObject
) -> None:
    whole = b"".join(encode(row) + b"\n" for row in rows)
    cut = data.draw(st.integers(0, len(whole)))
    line_ends = accumulate(len(encode(row)) + 1 for row in rows)
    survivors = sum(line_end - 1 <= cut for line_end in line_ends)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_bytes(whole[:cut])
        torn = [item for _, item in read_jsonl(path) if isinstance(item, Damaged)]
        with JsonlAppender(path) as sink:
            sink.append(b'{"next": 1}')

        found = [row for _, row in read_jsonl_objects(path)]
        assert found[-1] == {"next": 1}
        assert not any(isinstance(row, Damaged) for row in found)
        assert len(found) - 1 == survivors
        assert found[:-1] == rows[: len(found) - 1]
        assert len(torn) == (1 if sink.dropped_bytes else 0)


def test_appends_from_many_threads_and_descriptors_give_as_many_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    line = b'{"filler": "' + b"x" * 5000 + b'"}'

    def write_many() -> None:
        with JsonlAppender(path) as sink:
            for _ in range(50):
                sink.append(line)

    threads = [threading.Thread(target=write_many) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [item for _, item in read_jsonl(path)] == [line] * 400
