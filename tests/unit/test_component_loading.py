"""From a component folder to a server: imports that do not collide, and mistakes said clearly."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.config.resolved import RunConfig, ServerInstance
from nemo_gym.errors import ConfigMistake
from nemo_gym.servers.load import build_server, load_server_class
from nemo_gym.transport.directory import Directory
from nemo_gym.transport.server_client import ServerClient

_APP = """
from nemo_gym.base_resources_server import BaseResourcesServerConfig, SimpleResourcesServer
{imports}

class Config(BaseResourcesServerConfig):
    limit: int = 3
    judge: str | None = None

class Mine(SimpleResourcesServer):
    config: Config

    async def verify(self, body):
        return {value}
"""


def _component(root: Path, name: str, **files: str) -> ServerInstance:
    folder = root / "resources_servers" / name
    folder.mkdir(parents=True)
    for file, text in files.items():
        (folder / f"{file}.py").write_text(textwrap.dedent(text))
    return ServerInstance(name, "resources_servers", name, folder, {"entrypoint": "app.py"})


def _app(imports: str = "", value: str = "body") -> str:
    return _APP.format(imports=imports, value=value)


def _with(instance: ServerInstance, **settings: Any) -> ServerInstance:
    return ServerInstance(
        instance.name, instance.kind, instance.implementation, instance.folder, settings
    )


def _build(instance: ServerInstance, config: RunConfig | None = None) -> object:
    client = ServerClient(Directory(), {})
    server, _ = build_server(instance, config or RunConfig({}, (), {}), client)
    return server


def test_components_may_all_call_their_files_alike(tmp_path: Path) -> None:
    instances = [
        _component(tmp_path / root, name, app=_app("from helpers import WHO", "WHO"), helpers=who)
        for root, name, who in [
            ("one", "a", "WHO = 'one a'"),
            ("one", "b", "WHO = 'one b'"),
            ("two", "a", "WHO = 'two a'"),
        ]
    ]

    classes = [load_server_class(instance) for instance in instances]

    found = [sys.modules[each.__module__].__dict__["WHO"] for each in classes]
    assert found == ["one a", "one b", "two a"]
    assert "helpers" not in sys.modules
    assert load_server_class(instances[0]) is classes[0]


def test_a_folder_that_is_laid_out_otherwise_is_loaded_alone(tmp_path: Path) -> None:
    instance = _component(tmp_path, "named", app=_app("from beside import B", "B"), beside="B = 2")
    moved = instance.folder.rename(tmp_path / "elsewhere")
    alone = ServerInstance("named", "resources_servers", "named", moved, {})

    first, again = load_server_class(alone), load_server_class(alone)

    assert first is again
    assert sys.modules[first.__module__].__dict__["B"] == 2
    assert not first.__module__.startswith("resources_servers")


def test_a_module_that_failed_to_import_can_be_mended_and_loaded(tmp_path: Path) -> None:
    instance = _component(tmp_path, "mended", app="raise ImportError('not yet')")
    with pytest.raises(ConfigMistake, match="not yet"):
        load_server_class(instance)
    app = instance.folder / "app.py"
    app.write_text(_app() + "\n# longer, so that no cached byte code is taken for it\n")

    assert load_server_class(instance).__name__ == "Mine"


def test_files_can_be_imported_relatively_and_by_the_name_of_the_component(tmp_path: Path) -> None:
    instance = _component(
        tmp_path,
        "related",
        app=_app("from .near import A\nfrom resources_servers.related.near import A as B"),
        near="A = object()",
    )

    module = sys.modules[load_server_class(instance).__module__]

    assert module.__dict__["A"] is module.__dict__["B"]


def test_an_import_inside_a_function_finds_the_file_later(tmp_path: Path) -> None:
    late = "def late():\n    from only_here import A\n    return A"
    instance = _component(tmp_path, "late", app=_app(late), only_here="A = 7")

    module = sys.modules[load_server_class(instance).__module__]

    assert module.__dict__["late"]() == 7


def test_a_worker_process_can_import_what_a_component_defines(tmp_path: Path) -> None:
    judge = "def judge(text):\n    return len(text)"
    instance = _component(tmp_path, "judged", app=_app(judge))
    script = f"""
        import multiprocessing, pathlib
        from nemo_gym.config.resolved import ServerInstance
        from nemo_gym.servers.load import load_server_class
        if __name__ == "__main__":
            import sys
            folder = pathlib.Path({str(instance.folder)!r})
            cls = load_server_class(
                ServerInstance("judged", "resources_servers", "judged", folder, {{}})
            )
            judge = sys.modules[cls.__module__].judge
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.apply(judge, ("four",)))
    """
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(script))

    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout.strip() == "4", done.stderr


_MISTAKES = {
    "no-file": ({}, "has no app.py"),
    "no-class": ({"app": "X = 1"}, "defines no server class"),
    "unfinished": (
        {
            "app": "from nemo_gym.base_resources_server import SimpleResourcesServer\n"
            "class Half(SimpleResourcesServer): pass"
        },
        "Half lacks verify",
    ),
    "two": ({"app": _app() + "class Other(SimpleResourcesServer):\n    verify = Mine.verify"}, "2"),
    "package": ({"app": "import no_such_package_at_all.part"}, "'no_such_package_at_all'"),
    "name": ({"app": "from nemo_gym.base_resources_server import Nothing"}, "Nothing"),
    "syntax": ({"app": "def:"}, "not Python"),
}


@pytest.mark.parametrize("case", _MISTAKES)
def test_a_component_that_cannot_be_used_is_one_clear_mistake(tmp_path: Path, case: str) -> None:
    files, expected = _MISTAKES[case]
    instance = _component(tmp_path, f"bad_{case.replace('-', '_')}", **files)

    with pytest.raises(ConfigMistake, match=expected) as raised:
        load_server_class(instance)

    assert raised.value.where is not None
    assert str(instance.folder) in raised.value.where
    assert raised.value.mend


_SHELL = """
from nemo_gym.base_resources_server import SimpleResourcesServer

class Mine(SimpleResourcesServer):
    async def verify(self, body):
        ...

    def {method}
"""
_RAISES = {
    "at import": ('raise RuntimeError("no weights here")\n', "imported: RuntimeError: no weights"),
    "exits at import": ("import sys\nsys.exit(4)\n", "imported: SystemExit: 4"),
    "when made": (
        _SHELL.format(method='model_post_init(self, context):\n        raise OSError("no disk")\n'),
        "built: OSError: no disk",
    ),
    "with its routes": (
        _SHELL.format(method="setup_webserver(self):\n        return 1 / 0\n"),
        "built: ZeroDivisionError",
    ),
    "without an app": (
        _SHELL.format(method="setup_webserver(self):\n        super().setup_webserver()\n"),
        "setup_webserver returns NoneType, not an app",
    ),
}


@pytest.mark.parametrize("case", _RAISES)
def test_what_a_component_raises_at_its_start_is_one_mistake_with_its_line(
    tmp_path: Path, case: str
) -> None:
    app, said = _RAISES[case]
    instance = _component(tmp_path, f"raises_{case.replace(' ', '_')}", app=app)

    with pytest.raises(ConfigMistake) as raised:
        _build(instance)

    assert said in raised.value.what
    assert raised.value.where is not None
    assert str(instance.folder) in raised.value.where
    assert "nemo_gym/servers" not in raised.value.where
    assert raised.value.mend


def test_requirements_beside_the_file_are_the_remedy_for_a_missing_package(tmp_path: Path) -> None:
    instance = _component(tmp_path, "wants_more", app="import no_such_package_at_all")
    (instance.folder / "requirements.txt").write_text("no-such-package-at-all\n")

    with pytest.raises(ConfigMistake) as raised:
        load_server_class(instance)

    assert raised.value.mend == f"pip install -r {instance.folder / 'requirements.txt'}"


def test_a_class_that_is_only_a_base_is_not_the_server(tmp_path: Path) -> None:
    app = _app() + "class Better(Mine):\n    pass"

    assert load_server_class(_component(tmp_path, "derived", app=app)).__name__ == "Better"


def test_settings_reach_the_components_own_config_class(tmp_path: Path) -> None:
    instance = _component(tmp_path, "settled", app=_app())

    server: Any = _build(_with(instance, entrypoint="app.py", limit="5", port=0))

    assert (server.config.name, server.config.limit) == ("settled", 5)


def test_a_setting_of_a_wrong_type_is_named_with_its_value_and_origin(tmp_path: Path) -> None:
    instance = _component(tmp_path, "mistyped", app=_app())
    key = "mistyped.resources_servers.mistyped.limit"
    config = RunConfig({}, (), {key: "env.yaml:3"})

    with pytest.raises(ConfigMistake) as raised:
        _build(_with(instance, limit="many"), config)

    assert f"{key} is 'many'" in raised.value.what
    assert "integer" in raised.value.what
    assert raised.value.where == "env.yaml:3"


def test_a_secret_of_a_wrong_type_is_not_shown(tmp_path: Path) -> None:
    instance = _component(tmp_path, "hushed", app=_app())
    config = RunConfig({}, (), {}, frozenset({"sk-12345"}))

    with pytest.raises(ConfigMistake) as raised:
        _build(_with(instance, limit="sk-12345"), config)

    assert "sk-12345" not in str(raised.value)


async def test_a_secret_of_the_run_is_kept_out_of_what_a_server_answers(tmp_path: Path) -> None:
    leaks = "async def leak():\n    raise ValueError('token abcdef-99')"
    instance = _component(tmp_path, "leaking", app=_app(leaks))
    directory = Directory()
    client = ServerClient(directory, {})
    secrets = frozenset({"abcdef-99"})  # named by an environment variable, not by its key

    server, app = build_server(instance, RunConfig({}, (), {}, secrets), client)
    app.post("/leak")(sys.modules[type(server).__module__].__dict__["leak"])
    directory.register_local("leaking", app)
    reply = await client.post("leaking", "/leak", json={})

    assert reply.status == 500
    assert "abcdef-99" not in await reply.text()


def test_every_wrong_setting_is_reported(tmp_path: Path) -> None:
    instance = _component(tmp_path, "twice_wrong", app=_app())

    with pytest.raises(ConfigMistake) as raised:
        _build(_with(instance, limit="many", judge=[1]))

    assert ".limit" in str(raised.value)
    assert ".judge" in str(raised.value)
