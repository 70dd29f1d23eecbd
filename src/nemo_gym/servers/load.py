"""From a server instance of the configuration to a running class of it: import, check, build.

Comes in: a `ServerInstance` (component folder, settings) and the client it calls others with. Goes
out: the server object and its ASGI app. Mistakes of the user are raised before anything starts.
"""

import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ValidationError

from nemo_gym.config.problems import Problems
from nemo_gym.config.resolved import RunConfig, ServerInstance
from nemo_gym.errors import ConfigMistake
from nemo_gym.servers.answers import note_secrets
from nemo_gym.servers.component_code import component_code
from nemo_gym.servers.import_component import import_component
from nemo_gym.servers.instance import BaseServer
from nemo_gym.transport.server_client import ServerClient

__all__ = ["build_server", "build_server_of", "load_server_class"]

_HIDDEN = "***"


def build_server(
    instance: ServerInstance, run_config: RunConfig, client: ServerClient
) -> tuple[BaseServer, FastAPI]:
    """Import the component of `instance`, check its settings, and return the server with its app.

    Raises `ConfigMistake` for settings that its config class refuses, by key and origin, and for a
    component that cannot be imported.
    """
    return build_server_of(load_server_class(instance), instance, run_config, client)


def build_server_of(
    server_class: type[BaseServer],
    instance: ServerInstance,
    run_config: RunConfig,
    client: ServerClient,
) -> tuple[BaseServer, FastAPI]:
    """Check the settings of `instance`; return a server of the class with its app.

    Raises `ConfigMistake`, also for what the component itself raises.
    """
    config = _checked_config(server_class, instance, run_config)
    note_secrets(client, run_config.secrets)
    try:
        with component_code(instance.name, "built", instance.folder):
            server = server_class(config=config, server_client=client)
            app: object = server.setup_webserver()
    except ConfigMistake as mistake:
        section = f"{instance.name}.{instance.kind}.{instance.implementation}"
        mistake.where = mistake.where or f"{_origin(section, run_config)} ({section})"
        raise
    if not isinstance(app, FastAPI):
        raise ConfigMistake(
            f"{server_class.__name__}.setup_webserver returns {type(app).__name__}, not an app",
            where=str(instance.folder),
            mend="end it with `return app`, the app that super().setup_webserver() gave",
        )
    return server, app


def load_server_class(instance: ServerInstance) -> type[BaseServer]:
    """Import the entrypoint of a component and return the one server class it defines."""
    entrypoint = instance.settings.get("entrypoint") or "app.py"
    path = instance.folder / str(entrypoint)
    module = import_component(path, instance.kind, instance.implementation)
    found = [c for c in _server_classes(module) if instance.kind == c.KIND]
    # A class that another one of the module derives from is its base, not the server.
    leaves = [c for c in found if not any(c is not o and issubclass(o, c) for o in found)]
    own = [c for c in leaves if c.__module__ == module.__name__] or leaves
    if len(own) == 1:
        return own[0]
    names = ", ".join(sorted(c.__name__ for c in own))
    raise ConfigMistake(
        f"{path.name} defines {len(own)} server classes ({names})"
        if own
        else f"{path.name} defines no server class that can be built{_unfinished(module)}",
        where=str(path),
        mend=f"define exactly one class for `{instance.kind}` in it, with every abstract method",
    )


def _server_classes(module: ModuleType) -> Iterator[type[BaseServer]]:
    for value in list(vars(module).values()):
        is_server = inspect.isclass(value) and issubclass(value, BaseServer)
        if is_server and not inspect.isabstract(value):
            yield value


def _unfinished(module: ModuleType) -> str:
    """Say which methods a class still lacks, where that is what is wrong."""
    for value in vars(module).values():
        if inspect.isclass(value) and value.__module__ == module.__name__:
            missing = sorted(getattr(value, "__abstractmethods__", ()))
            if issubclass(value, BaseServer) and missing:
                return f": {value.__name__} lacks {', '.join(missing)}"
    return ""


def _checked_config(
    server_class: type[BaseServer], instance: ServerInstance, run_config: RunConfig
) -> Any:
    config_class = server_class.model_fields["config"].annotation
    if not (inspect.isclass(config_class) and issubclass(config_class, BaseModel)):
        raise ConfigMistake(
            f"{server_class.__name__}.config is not a config class",
            where=str(instance.folder),
            mend="annotate `config` with a class derived from BaseRunServerInstanceConfig",
        )
    try:
        return config_class.model_validate({**instance.settings, "name": instance.name})
    except ValidationError as exc:
        problems = Problems()
        for error in exc.errors(include_url=False):
            _note(problems, error, instance, run_config)
        problems.raise_any()
        raise


def _note(
    problems: Problems, error: Mapping[str, Any], instance: ServerInstance, run_config: RunConfig
) -> None:
    place = (instance.name, instance.kind, instance.implementation)
    key = ".".join(map(str, (*place, *error["loc"])))
    if error["type"] == "missing":
        what = f"{key} is not set"
        mend = f"set {key}"
    else:
        what = f"{key} is {_shown(error['input'], run_config)}: {error['msg']}"
        mend = f"set {key} to a value that {instance.implementation} takes"
    problems.add(what, where=_origin(key, run_config), mend=mend)


def _shown(value: object, run_config: RunConfig) -> str:
    text = repr(value)
    if any(secret in text for secret in run_config.secrets):
        return _HIDDEN
    return text if len(text) <= 80 else f"{text[:80]}…"


def _origin(key: str, run_config: RunConfig) -> str | None:
    """Return where the key, or the nearest section above it, was set."""
    while key:
        if key in run_config.origins:
            return run_config.origins[key]
        key = key.rpartition(".")[0]
    return None
