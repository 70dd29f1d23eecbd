"""Law of appending: what a killed writer leaves costs itself, whoever else writes or clears."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nemo_gym.capture.layout import Layout
from nemo_gym.capture.rollout_files import RolloutFiles
from nemo_gym.files.disk import REAL_DISK
from nemo_gym.ids import RolloutId

A = RolloutId("0-0")

# Few sizes, so that a file often has the size again that a writer remembers of it.
sizes = st.integers(1, 3)
steps = st.lists(
    st.tuples(st.sampled_from([0, 1]), sizes)
    | st.tuples(st.just("torn"), sizes)
    | st.tuples(st.sampled_from(["clear", "remove"]), st.just(0)),
    max_size=12,
)


@pytest.mark.parametrize("own", [None, "w"])
@settings(max_examples=300)
@given(steps)
@example([(0, 1), (0, 1), ("clear", 0), (1, 1), ("torn", 2), (0, 1)])
def test_every_line_is_whole_and_alone(own: str | None, steps: list[tuple[int | str, int]]) -> None:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        layout = Layout(Path(folder))
        path = layout.capture_file(A, own)
        writers = [RolloutFiles(layout, REAL_DISK, own) for _ in range(2)]
        kept: list[bytes] = []
        torn = False
        for step, size in steps:
            if isinstance(step, int):
                kept.append(str(step).encode() * size)
                writers[step].append(A, kept[-1])
                torn = False
            elif step == "torn" and not torn:
                kept.append(b"t" * size)
                with path.open("ab") as file:
                    file.write(kept[-1])
                torn = True
            elif step != "torn":
                if step == "remove":
                    path.unlink(missing_ok=True)
                elif path.exists():
                    path.write_bytes(b"")
                kept, torn = [], False
        found = path.read_bytes().splitlines() if path.exists() else []
        for writer in writers:
            writer.close()

    assert found == kept
