"""Where the head server listens: a port for this run is taken, one that runs share is not."""

import contextlib
import socket
from collections.abc import Generator
from pathlib import Path

import pytest

from nemo_gym.config.load import ConfigRequest, load_run_config
from nemo_gym.errors import PortInUse
from nemo_gym.runtime.layout import bind_head


@contextlib.contextmanager
def _taken() -> Generator[int]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock.getsockname()[1]


def _free() -> int:
    with _taken() as port:
        return port


def _bound(folder: Path, *overrides: str, free_port: bool = True) -> int:
    request = ConfigRequest(overrides=overrides, working_dir=folder, environ={})
    with contextlib.closing(bind_head(load_run_config(request), free_port=free_port)) as sock:
        return int(sock.getsockname()[1])


@pytest.mark.parametrize("override", ["++head_server.port={}", "++head_server={{port: {}}}"])
def test_a_port_that_an_override_gives_is_taken(tmp_path: Path, override: str) -> None:
    port = _free()

    assert _bound(tmp_path, override.format(port)) == port


def test_a_port_that_an_override_gives_and_another_has_is_refused(tmp_path: Path) -> None:
    with _taken() as port, pytest.raises(PortInUse) as refused:
        _bound(tmp_path, f"++head_server.port={port}")

    assert str(port) in str(refused.value)
    assert refused.value.where == "head_server.host, head_server.port"


def test_a_port_of_the_shared_configuration_is_left_to_the_servers_that_stay(
    tmp_path: Path,
) -> None:
    with _taken() as port:
        (tmp_path / "env.yaml").write_text(f"head_server:\n  port: {port}\n", encoding="utf-8")

        assert _bound(tmp_path) != port
        with pytest.raises(PortInUse):
            _bound(tmp_path, free_port=False)
