"""Law of removed folders: whatever is removed, every row that has a file is read by everybody."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import RolloutId
from support.disks import DISKS

A, B = RolloutId("0-0"), RolloutId("0-1")


def store_on(directory: Path, kind: str) -> CaptureStore:
    return CaptureStore(directory, disk=DISKS[kind](), segment_bytes=4096)


def row(call_id: str) -> Row:
    return Row(A, call_id, f'{{"model_call_id":"{call_id}"}}'.encode())


STEPS = ("write", "open", "remove hidden", "remove all", "mark", "close", "clear")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(list(DISKS))), max_size=12))
def test_whatever_is_removed_every_row_that_has_a_file_is_read(
    steps: list[tuple[str, str]],
) -> None:
    """By writers of several hosts, as they share a directory whose locks work for some of them."""
    with TemporaryDirectory(dir="/dev/shm") as folder:
        directory = Path(folder) / "captures"
        stores = {kind: store_on(directory, kind) for kind in DISKS}
        for number, (step, kind) in enumerate((("write", "local"), *steps)):
            match step:
                case "write":
                    stores[kind].submit(row(f"c{number}")).result()
                case "open":
                    stores[kind].open_for_writing()
                case "remove hidden":
                    shutil.rmtree(directory / ".nemo_gym", ignore_errors=True)
                case "remove all":
                    shutil.rmtree(directory, ignore_errors=True)
                case "mark":
                    stores[kind].mark_incomplete(B, "a reason")
                    stores[kind].flush()
                case "close":
                    stores[kind].close()
                case _:
                    CaptureStore(directory, segment_bytes=4096).clear([A])

            files = directory.glob(f"{A}*.capture.jsonl")
            lines = sum(path.read_bytes().count(b"\n") for path in files)
            assert [len(store.read(A)) for store in stores.values()] == [lines] * len(DISKS)
            assert step != "clear" or lines == 0
        for store in stores.values():
            store.close()
