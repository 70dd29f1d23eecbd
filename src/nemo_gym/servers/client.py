"""Temporary: until `transport.server_client` is committed."""

# mypy: ignore-errors
# ruff: noqa
__all__ = ["ServerClient"]
try:
    from nemo_gym.transport.server_client import ServerClient
except ImportError:
    from typing import Any

    class ServerClient:
        global_config_dict: dict = {}
