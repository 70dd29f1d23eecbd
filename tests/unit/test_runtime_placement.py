"""Which process hosts which server."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.config.resolved import ServerInstance
from nemo_gym.runtime.placement import plan_processes


def _server(name: str, **settings: object) -> ServerInstance:
    return ServerInstance(name, "resources_servers", name, Path(), settings)


_names = st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1)


@given(_names, st.sets(st.sampled_from("abcdefgh")), st.integers(1, 4))
def test_every_server_is_hosted_by_each_cell_or_by_one_process_of_its_own(
    names: list[str], alone: set[str], workers: int
) -> None:
    servers = [_server(n, own_process=True) if n in alone else _server(n) for n in names]
    plans = plan_processes(servers, workers)

    for server in servers:
        hosting = [p for p in plans if server in p.servers]
        assert len(hosting) == (1 if server.name in alone else workers)
    assert len({p.name for p in plans}) == len(plans)


@given(_names, st.integers(1, 4))
def test_documented_ports_are_taken_once(names: list[str], workers: int) -> None:
    plans = plan_processes([_server(n) for n in names], workers)

    assert sum(p.fixed_ports for p in plans if p.is_cell) == 1


def test_one_process_each_leaves_no_cell() -> None:
    plans = plan_processes([_server("a"), _server("b")], 2, one_process_each=True)

    assert [p.name for p in plans] == ["a", "b"]
    assert not any(p.is_cell for p in plans)


def test_a_server_with_an_interpreter_of_its_own_has_a_process_of_its_own() -> None:
    (cell, lone) = plan_processes([_server("a"), _server("b", python="/x/bin/python")], 1)

    assert [s.name for s in cell.servers] == ["a"]
    assert lone.python == "/x/bin/python"
