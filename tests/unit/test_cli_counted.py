"""Numbers of things in sentences."""

import pytest

from nemo_gym.cli.counted import counted


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 calls"), (1, "1 call"), (2, "2 calls"), (1234, "1,234 calls")]
)
def test_one_thing_is_told_in_the_singular(number: int, shown: str) -> None:
    assert counted(number, "call") == shown
