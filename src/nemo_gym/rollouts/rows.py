"""Input files in, rows out, one at a time: the bytes of each line with its place.

Nothing is parsed here and at most one line is held.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from nemo_gym.errors import InvalidRow, UserMistake
from nemo_gym.rollouts.plan import SourceRow

__all__ = ["check_readable", "read_rows"]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONGEST_LINE = 1 << 30


def check_readable(paths: Sequence[Path]) -> None:
    """Raise `UserMistake` for the first path that is not a readable file."""
    for path in paths:
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            raise UserMistake(
                f"the input cannot be read: {error.strerror}",
                where=str(path),
                mend="give --input the path of a JSONL file",
            ) from error


def read_rows(paths: Sequence[Path]) -> Iterator[SourceRow]:
    """Yield the rows of `paths` in order; blank lines are skipped but counted.

    A place is `file:line`. Raises `InvalidRow` for a line longer than 1 GiB.
    """
    for path in paths:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(_LONGEST_LINE):
                number += 1
                place = f"{path}:{number}"
                if len(line) == _LONGEST_LINE:
                    raise InvalidRow(
                        "the line is longer than 1 GiB",
                        where=place,
                        mend="take out of the row what the environment does not need",
                    )
                if number == 1:
                    line = line.removeprefix(_BYTE_ORDER_MARK)
                if data := line.strip():
                    yield SourceRow(place, data)
