"""Front door: calling other servers, and serving one by hand."""

from nemo_gym.servers.client import ServerClient
from nemo_gym.servers.instance import BaseRunServerInstanceConfig, BaseServer, SimpleServer
from nemo_gym.servers.session import SESSION_ID_KEY

__all__ = [
    "SESSION_ID_KEY",
    "BaseRunServerInstanceConfig",
    "BaseServer",
    "ServerClient",
    "SimpleServer",
]
