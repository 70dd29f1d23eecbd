"""Which sources are read, in which order, and what comes out."""

from pathlib import Path

import pytest

from nemo_gym.config.load import (
    ConfigRequest,
    check_run_config,
    load_run_config,
    require_servers,
)
from nemo_gym.config.schema import root_settings
from nemo_gym.errors import ConfigMistake
from support.config_files import MODEL, ask, write_root


def test_a_run_has_the_servers_of_the_components_named(tmp_path: Path) -> None:
    config = load_run_config(ask(write_root(tmp_path)))

    assert [(s.name, s.kind, s.implementation) for s in config.servers] == [
        ("mcqa", "resources_servers", "mcqa"),
        ("mcqa_simple_agent", "responses_api_agents", "simple_agent"),
        ("policy_model", "responses_api_models", "some_model"),
    ]
    assert config.servers[0].folder == tmp_path / "resources_servers" / "mcqa"
    assert config.servers[2].settings["api_key"] == "sk-planted-key"
    assert "sk-planted-key" in config.secrets


def test_later_sources_win_over_earlier_ones(tmp_path: Path) -> None:
    write_root(tmp_path)
    place = "mcqa.resources_servers.mcqa.max_tries"
    file = "mcqa: {resources_servers: {mcqa: {max_tries: 2}}}\npolicy_model_name: from-file\n"
    by_file = load_run_config(ask(tmp_path, config=file))
    by_override = load_run_config(ask(tmp_path, f"{place}=3", config=file))

    assert by_file.servers[0].settings["max_tries"] == 2
    assert by_file.tree["policy_model_name"] == "some-name"  # env.yaml comes after files
    assert by_override.servers[0].settings["max_tries"] == 3
    assert by_override.origins[place] == f"override {place}"
    assert by_file.origins[place] == "extra.yaml:1"


def test_flags_win_over_env_yaml_and_overrides_over_flags(tmp_path: Path) -> None:
    request = ConfigRequest(
        working_dir=write_root(tmp_path),
        model="flag-model",
        model_url="http://flag/v1",
        model_api_key="flag-key-${literal}",
        overrides=("policy_base_url=http://override/v1",),
    )
    config = load_run_config(request)

    assert config.tree["policy_model_name"] == "flag-model"
    assert config.tree["policy_base_url"] == "http://override/v1"
    assert config.tree["policy_api_key"] == "flag-key-${literal}"
    assert config.origins["policy_model_name"] == "--model"


def test_flags_alone_need_no_env_yaml(tmp_path: Path) -> None:
    request = ConfigRequest(
        resources_servers=("mcqa",),
        model_types=("some_model",),
        working_dir=write_root(tmp_path, env=None),
        model="m",
        model_url="http://h",
        model_api_key="k",
    )

    assert load_run_config(request).servers[2].settings["base_url"] == "http://h"


def test_a_missing_env_yaml_is_no_mistake_when_nothing_wants_it(tmp_path: Path) -> None:
    request = ask(write_root(tmp_path, env=None), resources_servers=(), model_types=())

    assert load_run_config(request).servers == ()


def test_a_known_setting_exists_with_its_default(tmp_path: Path) -> None:
    config = load_run_config(
        ask(
            write_root(tmp_path),
            "head_server.port=11005",
            "mcqa.resources_servers.mcqa.port=8000",
            "mcqa.resources_servers.mcqa.max_tries=5",
        )
    )

    assert root_settings(config.tree).head_server.port == 11005
    assert root_settings(config.tree).head_server.host == "127.0.0.1"
    assert config.servers[0].settings["port"] == 8000


def test_text_of_the_environment_becomes_the_type_of_the_setting(tmp_path: Path) -> None:
    config = load_run_config(
        ask(
            write_root(tmp_path),
            config="observability_enabled: ${oc.env:ON}\nmodel_call_capture_dir: /tmp/x\n"
            "head_server: {port: '${oc.env:PORT}'}\ntelemetry: {metrics: {sample_interval_s: 2}}\n",
            environ={"ON": "true", "PORT": "9000"},
        )
    )
    settings = root_settings(config.tree)

    assert settings.observability_enabled is True
    assert settings.head_server.port == 9000
    assert settings.telemetry.metrics.sample_interval_s == 2.0
    assert settings.telemetry.metrics.enabled is False


def test_a_value_read_from_a_secret_variable_is_secret_under_any_key(tmp_path: Path) -> None:
    config = load_run_config(
        ask(
            write_root(tmp_path),
            config="x: ${oc.env:SOME_API_KEY}\ny: ${oc.env:HOME_TOWN}\n",
            environ={"SOME_API_KEY": "very-secret", "HOME_TOWN": "Springfield"},
        )
    )

    assert config.hidden()["x"] == "***"
    assert config.hidden()["y"] == "Springfield"


def test_a_run_without_servers_can_be_refused(tmp_path: Path) -> None:
    write_root(tmp_path)

    require_servers(load_run_config(ask(tmp_path)))
    with pytest.raises(ConfigMistake, match="nothing to start"):
        require_servers(load_run_config(ask(tmp_path, resources_servers=(), model_types=())))


def test_credentials_that_no_server_of_the_run_wants_need_not_resolve(tmp_path: Path) -> None:
    env = "policy_api_key: ${oc.env:UNSET_KEY}\nother: {a: '${nowhere}', b: 1}\n"
    config = load_run_config(
        ask(write_root(tmp_path, env=env), resources_servers=(), model_types=())
    )

    assert config.tree == {"policy_api_key": None, "other": {"a": None, "b": 1}}


def test_a_reference_with_an_open_name_binds_to_the_only_server_of_its_kind(tmp_path: Path) -> None:
    agent = (
        "other_agent: {responses_api_agents: {simple_agent: {resources_server: "
        "{type: resources_servers, name: '???'}, model_server: "
        "{type: responses_api_models, name: '???'}}}}\n"
    )
    config = load_run_config(ask(write_root(tmp_path), config=agent))

    settings = config.servers[-1].settings
    assert settings["resources_server"] == {"type": "resources_servers", "name": "mcqa"}
    assert settings["model_server"] == {"type": "responses_api_models", "name": "policy_model"}
    assert config.tree["other_agent"] == {"responses_api_agents": {"simple_agent": settings}}


def test_a_configuration_file_brings_the_component_it_lies_in(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    write_root(tmp_path / "far")
    file = tmp_path / "far/resources_servers/mcqa/configs/mcqa.yaml"
    request = ConfigRequest(
        config_files=(str(file),), working_dir=here, overrides=("~mcqa_simple_agent",)
    )

    assert load_run_config(request).servers[0].folder == file.parents[1]


def test_a_search_directory_goes_before_the_working_directory(tmp_path: Path) -> None:
    write_root(tmp_path / "here")
    write_root(tmp_path / "there", env=None)
    request = ConfigRequest(
        model_types=("some_model",),
        search_dirs=(tmp_path / "there",),
        working_dir=tmp_path / "here",
    )

    assert load_run_config(request).servers[0].folder.is_relative_to(tmp_path / "there")


def test_the_same_server_said_in_two_files_is_merged(tmp_path: Path) -> None:
    config = load_run_config(
        ask(write_root(tmp_path), config=MODEL.replace("${policy_model_name}", "fixed"))
    )

    assert config.servers[-1].settings["model"] == "fixed"


def test_a_deleted_server_is_gone(tmp_path: Path) -> None:
    config = load_run_config(ask(write_root(tmp_path), "~mcqa_simple_agent"))

    assert [server.name for server in config.servers] == ["mcqa", "policy_model"]
    assert not any(key.startswith("mcqa_simple_agent") for key in config.origins)


def test_a_component_may_read_what_a_file_declares(tmp_path: Path) -> None:
    config = load_run_config(
        ask(write_root(tmp_path), "my_flag=true", "++my_section.a=2", config=_DECLARED)
    )

    assert config.tree["my_flag"] is True
    assert config.tree["my_section"] == {"a": 2}


_DECLARED = "my_flag: false\nmy_section: {a: 1}\n"


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    request = ask(write_root(tmp_path), "++nonsense=1", "head_server.port=x", "++a.b=2")
    mistakes = check_run_config(request)

    assert len(mistakes) == 3
    with pytest.raises(ConfigMistake) as caught:
        load_run_config(request)
    for mistake in mistakes:
        assert mistake.what in str(caught.value)


def test_a_right_configuration_has_no_mistakes(tmp_path: Path) -> None:
    assert check_run_config(ask(write_root(tmp_path))) == ()
