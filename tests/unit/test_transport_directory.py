import pytest
from starlette.types import Receive, Scope, Send

from nemo_gym.errors import ConnectFailed
from nemo_gym.ids import parse_rollout_id
from nemo_gym.transport.directory import Directory

ORIGINS = [f"http://127.0.0.1:{port}" for port in (4001, 4002, 4003)]


async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """Never called."""


def test_the_same_cell_comes_first() -> None:
    directory = Directory()
    directory.set_addresses("mcqa", ORIGINS)
    directory.register_local("mcqa", app)

    assert directory.pick("mcqa", parse_rollout_id("0-0")).origin is None


def test_a_rollout_stays_at_one_instance_and_rollouts_spread() -> None:
    directory = Directory()
    directory.set_addresses("mcqa", ORIGINS)
    rollouts = [parse_rollout_id(f"{task}-0") for task in range(60)]

    first = [directory.pick("mcqa", rollout).origin for rollout in rollouts]

    assert first == [directory.pick("mcqa", rollout).origin for rollout in rollouts]
    assert {first.count(origin) > 5 for origin in ORIGINS} == {True}


def test_without_a_rollout_the_least_loaded_is_taken() -> None:
    directory = Directory()
    directory.set_addresses("agent", ORIGINS)
    directory.instances("agent")[0].in_flight = 2
    directory.instances("agent")[1].in_flight = 1
    directory.instances("agent")[2].in_flight = 3

    assert directory.pick("agent").origin == ORIGINS[1]


def test_by_load_even_the_same_cell_takes_its_turn() -> None:
    directory = Directory()
    directory.register_local("agent", app)
    directory.set_addresses("agent", ORIGINS[:1])
    directory.pick("agent", spread="load").in_flight += 1

    assert directory.pick("agent", spread="load").origin == ORIGINS[0]


def test_addresses_that_stay_keep_their_instance() -> None:
    directory = Directory()
    directory.set_addresses("agent", ORIGINS)
    kept = directory.instances("agent")[1]
    directory.set_addresses("agent", ORIGINS[1:])

    assert directory.instances("agent")[0] is kept


def test_a_name_that_nobody_has_is_told_with_those_there_are() -> None:
    directory = Directory()
    directory.register_local("mcqa", app)
    directory.set_addresses("policy_model", ORIGINS)

    with pytest.raises(ConnectFailed, match=r"'mcqq'.*mcqa, policy_model"):
        directory.pick("mcqq")
