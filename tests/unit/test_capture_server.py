"""Which rollout a call belongs to that comes to `gym capture serve` without a prefix."""

import pytest

from nemo_gym.ids import RolloutId, parse_rollout_id
from nemo_gym.runtime.capture_server import session_rollout

name = session_rollout(RolloutId("process-1"), frozenset({"sk-of-the-server"}))


def _of(session: str | None) -> RolloutId | None:
    headers = [] if session is None else [(b"session_id", session.encode())]
    return name({"headers": headers})


@pytest.mark.parametrize(
    "session",
    [
        *["sk-of-the-server", "session-sk-of-the-server-7", "sk%2Dof%2Dthe%2Dserver"],
        *["sk-of-the-client", "mine/sk-of-the-client", "Bearer sk-of-the-client", "of-the-query"],
    ],
)
def test_a_session_that_tells_a_key_is_the_process(session: str) -> None:
    headers = [(b"authorization", b"Bearer sk-of-the-client"), (b"session_id", session.encode())]

    assert name({"headers": headers, "query_string": b"key=of-the-query"}) == "process-1"
    assert name({"headers": [headers[0], (b"session_id", b"mine")]}) == "mine"


def test_a_session_id_is_the_rollout_where_it_can_be() -> None:
    assert _of("0199a8e2-7c1b-7e32-9f6e-1f0a4f1d2b3c") == "0199a8e2-7c1b-7e32-9f6e-1f0a4f1d2b3c"
    assert _of(None) == _of("///") == "process-1"


@pytest.mark.parametrize("session", ["0-0", "12-345", "0-0-a1", "mine-a2", "process-1"])
def test_a_session_never_has_the_id_of_a_rollout_or_of_the_process(session: str) -> None:
    found = str(_of(session))

    assert found.startswith(f"session-{session}-")
    assert _of(found) == found
    assert _of(session) == found


@pytest.mark.parametrize("session", ["0", "0-0-0", "2026-11-30", "0-a", "x-a", "x-ab1"])
def test_other_short_session_ids_stay_as_they_are(session: str) -> None:
    assert _of(session) == session


def test_sessions_that_differ_only_in_what_a_file_name_cannot_hold_stay_apart() -> None:
    long = "a" * 185
    names = [_of(text) for text in ("a/b", "a-b", "a b", ".a-b", f"{long}b/", f"{long}c/")]

    assert len(set(names)) == len(names)
    assert names[1] == "a-b"
    assert all(found and parse_rollout_id(found) for found in names)
