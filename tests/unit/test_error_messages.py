"""What an error says: what, where, how to mend it; and the end of a log where a server died."""

import pytest

from nemo_gym.errors import ServerDied, UserMistake


@pytest.mark.parametrize(
    ("where", "mend", "said"),
    [
        (None, None, "it is so"),
        ("env.yaml:3", None, "it is so\n  where: env.yaml:3"),
        (None, "undo it", "it is so\n  mend:  undo it"),
        ("env.yaml:3", "undo it", "it is so\n  where: env.yaml:3\n  mend:  undo it"),
    ],
)
def test_a_mistake_says_what_is_known_of_it(where: str | None, mend: str | None, said: str) -> None:
    assert str(UserMistake("it is so", where=where, mend=mend)) == said


@pytest.mark.parametrize(
    ("log_tail", "said"),
    [("", "mcqa: exit code 3"), ("last\nlines", "mcqa: exit code 3\nlast\nlines")],
)
def test_a_server_that_died_is_named_with_the_end_of_its_log(log_tail: str, said: str) -> None:
    assert str(ServerDied("mcqa", "exit code 3", log_tail)) == said
