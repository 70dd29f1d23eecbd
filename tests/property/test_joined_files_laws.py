"""Law of joining: the files of several writers become one list, whatever is in them."""

import json
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym.capture.layout import Layout
from nemo_gym.capture.reading import read_rollout
from nemo_gym.files.disk import REAL_DISK
from nemo_gym.files.jsonl import Damaged
from nemo_gym.ids import RolloutId

A = RolloutId("0-0")
WRITERS = (None, "a", "b")

known = st.integers(-3, 3) | st.sampled_from([10**400, -(10**400), 0.5, 1e308, 10**308])
unknown: st.SearchStrategy[object] = st.sampled_from([float("nan"), None, "5", [1], {}])
rows = st.lists(st.tuples(st.sampled_from(WRITERS), known | unknown), max_size=8)


@settings(deadline=None)
@given(rows, st.lists(st.sampled_from(WRITERS), max_size=2))
def test_every_line_is_there_and_rows_are_in_the_order_of_their_ends(
    written: list[tuple[str | None, object]], damaged: list[str | None]
) -> None:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        layout = Layout(Path(folder))
        for number, (writer, completed) in enumerate(written):
            # Ids that sort otherwise than the rows were written.
            row = {"model_call_id": f"c{9 - number}", "completed_at": completed}
            with layout.capture_file(A, writer).open("a") as file:
                file.write(json.dumps(row) + "\n")
        for writer in damaged:
            with layout.capture_file(A, writer).open("a") as file:
                file.write("{\n")
        items = read_rollout(layout, REAL_DISK, A)

    found = [item for item in items if not isinstance(item, Damaged)]
    assert len(items) - len(found) == len(damaged)
    assert {item["model_call_id"] for item in found} == {f"c{9 - n}" for n in range(len(written))}
    # One file alone is in the order in which it was written.
    if len({writer for writer, _ in written} | set(damaged)) > 1:
        ends = [(i["completed_at"], i["model_call_id"]) for i in found if _is_known(i)]
        assert ends == sorted(ends, key=lambda end: (Fraction(end[0]), end[1]))


def _is_known(item: dict[str, object]) -> bool:
    completed = item["completed_at"]
    return isinstance(completed, int | float) and completed == completed  # noqa: PLR0124 - no NaN
