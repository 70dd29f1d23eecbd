"""The files that rows go to: one line a row, whatever the row holds."""

from pathlib import Path

from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import RolloutId

A = RolloutId("0-0")


def test_a_row_with_a_line_break_stays_one_line(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    store.submit(Row(A, "c", b'{\n"model_call_id":\n"c"}')).result()

    assert store.read(A) == [{"model_call_id": "c"}]
    store.close()
