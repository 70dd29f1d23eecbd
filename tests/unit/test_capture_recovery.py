"""Replaying the log that a power cut left: every row comes back, once, whole and in its order."""

import struct
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.capture.layout import Layout
from nemo_gym.capture.log import new_segment, read_segment, write_records
from nemo_gym.capture.recovery import recover
from nemo_gym.capture.row import Row
from nemo_gym.files.disk import REAL_DISK, Disk
from nemo_gym.ids import RolloutId

A = RolloutId("0-0")


def row(call_id: str) -> Row:
    return Row(A, call_id, f'{{"model_call_id":"{call_id}","x":"{"x" * 100}"}}'.encode())


def layout_of(directory: Path) -> Layout:
    layout = Layout(directory)
    for folder in layout.folders:
        folder.mkdir(exist_ok=True)
    return layout


def leave_segment(layout: Layout, number: int, generation: int, *rows: Row) -> None:
    """Write a segment of a writer that is gone."""
    path = layout.segment("w", number)
    segment = new_segment(REAL_DISK, path, generation, 4096, fill=False)
    write_records(REAL_DISK, segment, rows)
    REAL_DISK.close(segment.fd)


def leave_owner(layout: Layout) -> None:
    layout.owner("w").write_text("the boot before the cut")


def lines(*rows: Row) -> bytes:
    return b"".join(row.line + b"\n" for row in rows)


@pytest.mark.parametrize(
    "generations", [{2: 2, 10: 10}, {1: 3, 2: 2}], ids=["many segments", "written over"]
)
def test_rows_come_back_in_the_order_in_which_they_were_written(
    tmp_path: Path, generations: dict[int, int]
) -> None:
    layout = layout_of(tmp_path)
    leave_owner(layout)
    for number, generation in generations.items():
        leave_segment(layout, number, generation, row(f"g{generation}-0"), row(f"g{generation}-1"))

    assert recover(layout, REAL_DISK) == 4
    in_order = [row(f"g{g}-{n}") for g in sorted(generations.values()) for n in (0, 1)]
    assert layout.capture_file(A).read_bytes() == lines(*in_order)


def test_a_segment_whose_owner_file_was_lost_is_replayed(tmp_path: Path) -> None:
    layout = layout_of(tmp_path)
    leave_segment(layout, 1, 1, row("c0"))
    leave_segment(layout, 2, 2, row("c1"))

    assert recover(layout, REAL_DISK) == 2
    assert layout.capture_file(A).read_bytes() == lines(row("c0"), row("c1"))
    assert list(layout.logs.iterdir()) == []


@pytest.mark.parametrize(
    "torn",
    [row("c1").line[:40], row("c1").line[:40] + bytes(30), bytes(70), row("c1").line + bytes(9)],
    ids=["its beginning", "its beginning and zeros", "zeros", "all but its end and zeros"],
)
def test_a_torn_copy_of_a_row_that_comes_back_goes(tmp_path: Path, torn: bytes) -> None:
    layout = layout_of(tmp_path)
    leave_owner(layout)
    leave_segment(layout, 1, 1, row("b0"), row("c0"), row("c1"))
    layout.capture_file(A).write_bytes(lines(row("b0"), row("c0")) + torn)

    recover(layout, REAL_DISK)

    assert layout.capture_file(A).read_bytes() == lines(row("b0"), row("c0"), row("c1"))


def test_rows_in_a_log_of_an_earlier_version_come_back(tmp_path: Path) -> None:
    """Its records had a CRC-32, seeded with the generation."""
    layout = layout_of(tmp_path)
    leave_owner(layout)
    log = b"NGCLOG01" + (7).to_bytes(4, "little")
    for each in (row("c0"), row("c1")):
        payload = bytes([len(A), len(each.model_call_id)])
        payload += A.encode() + each.model_call_id.encode() + each.line
        log += struct.pack("<III", len(payload), zlib.crc32(payload, 7), 7) + payload
    layout.segment("w", 1).write_bytes(log + bytes(100))

    assert recover(layout, REAL_DISK) == 2
    assert layout.capture_file(A).read_bytes() == lines(row("c0"), row("c1"))


@given(st.integers(0, 2**16), st.integers(1, 255), st.booleans())
def test_of_a_log_with_a_byte_that_is_not_what_was_written_all_before_it_comes_back(
    at: int, change: int, zeros: bool
) -> None:
    with TemporaryDirectory() as folder:
        layout = layout_of(Path(folder))
        rows = [row(f"c{n}") for n in range(3)]
        leave_segment(layout, 1, 5, *rows)
        path = layout.segment("w", 1)
        log = bytearray(path.read_bytes())
        at %= len(log)
        if zeros:
            log[at:] = bytes(len(log) - at)  # what had not reached the disk
        else:
            log[at] ^= change
        path.write_bytes(log)

        _, found = read_segment(REAL_DISK, path)

    # 12 bytes of the segment's head, then the records, one as long as the other.
    whole = max(0, (at - 12) * len(rows) // (len(log) - 12))
    assert found == rows[:whole]


def test_a_row_that_the_log_has_twice_comes_back_once(tmp_path: Path) -> None:
    layout = layout_of(tmp_path)
    leave_owner(layout)
    leave_segment(layout, 1, 1, row("c0"), row("c0"), row("c1"))
    leave_segment(layout, 2, 2, row("c0"))

    assert recover(layout, REAL_DISK) == 2
    assert layout.capture_file(A).read_bytes() == lines(row("c0"), row("c1"))


def test_a_torn_line_of_another_row_is_kept_on_a_line_of_its_own(tmp_path: Path) -> None:
    layout = layout_of(tmp_path)
    leave_owner(layout)
    leave_segment(layout, 1, 1, row("c1"))
    torn = row("other").line[:40]
    layout.capture_file(A).write_bytes(torn)

    recover(layout, REAL_DISK)

    assert layout.capture_file(A).read_bytes() == torn + b"\n" + lines(row("c1"))


@pytest.mark.parametrize("boot", [REAL_DISK.page_cache_id() or "this boot", None])
def test_a_file_that_somebody_removed_comes_back_only_where_the_power_may_have_gone(
    tmp_path: Path, boot: str | None
) -> None:
    """A writer that was killed is no power cut: what it wrote is there, or was removed since."""

    class Booted(Disk):
        def page_cache_id(self) -> str | None:
            return boot

    layout = layout_of(tmp_path)
    layout.owner("w").write_text(boot or "")
    leave_segment(layout, 1, 1, row("c0"), row("c1"))
    restored, known = recover(layout, Booted()), boot is not None

    assert restored == (0 if known else 2)
    assert layout.capture_file(A).exists() is not known
    assert list(layout.logs.iterdir()) == []


def test_one_opener_waits_for_another_that_is_at_it(tmp_path: Path) -> None:
    """Or it would read before the rows are back."""
    layout = layout_of(tmp_path)
    leave_owner(layout)
    leave_segment(layout, 1, 1, row("c0"))
    held: list[bool] = []

    class Watched(Disk):
        def open_existing(self, path: Path) -> int:
            other = super().open_read(layout.hidden / "recovery.lock")
            held.append(self.locks.is_held(other))
            self.close(other)
            return super().open_existing(path)

    recover(layout, Watched())

    assert held == [True]
