"""Which rollout a call belongs to that comes to `gym capture serve` without a prefix."""

from nemo_gym.ids import RolloutId, parse_rollout_id
from nemo_gym.runtime.capture_server import session_rollout

name = session_rollout(RolloutId("process-1"))


def _of(session: str | None) -> RolloutId | None:
    headers = [] if session is None else [(b"session_id", session.encode())]
    return name({"headers": headers})


def test_a_session_id_is_the_rollout_where_it_can_be() -> None:
    assert _of("0199a8e2-7c1b-7e32-9f6e-1f0a4f1d2b3c") == "0199a8e2-7c1b-7e32-9f6e-1f0a4f1d2b3c"
    assert _of(None) == _of("///") == "process-1"


def test_sessions_that_differ_only_in_what_a_file_name_cannot_hold_stay_apart() -> None:
    long = "a" * 185
    names = [_of(text) for text in ("a/b", "a-b", "a b", ".a-b", f"{long}b/", f"{long}c/")]

    assert len(set(names)) == len(names)
    assert names[1] == "a-b"
    assert all(found and parse_rollout_id(found) for found in names)
