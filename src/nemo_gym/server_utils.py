"""Front door: calling other servers, and serving one by hand."""

from nemo_gym.servers.entrypoint import is_nemo_gym_fastapi_entrypoint
from nemo_gym.servers.instance import (
    BaseRunServerInstanceConfig,
    BaseServer,
    BaseServerConfig,
)
from nemo_gym.servers.session import SESSION_ID_KEY
from nemo_gym.servers.simple_server import SimpleServer
from nemo_gym.transport.server_client import (
    ServerClient,
    get_response_json,
    raise_for_status,
    request,
)

__all__ = [
    "SESSION_ID_KEY",
    "BaseRunServerInstanceConfig",
    "BaseServer",
    "BaseServerConfig",
    "ServerClient",
    "SimpleServer",
    "get_response_json",
    "is_nemo_gym_fastapi_entrypoint",
    "raise_for_status",
    "request",
]
