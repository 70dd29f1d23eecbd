"""What a driver asks for and what running servers have: the same, or an error that shows both."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.config.resolved import RunConfig
from nemo_gym.config.secrets import collect_secrets
from nemo_gym.errors import ConfigMistake
from nemo_gym.runtime.agreement import refuse_differences, secret_marks

KEY = "sk-of-the-servers-42"
URL = "http://127.0.0.1:11000"
RUNNING: dict[str, Any] = {
    "mcqa": {"resources_servers": {"mcqa": {"entrypoint": "app.py", "grading_mode": "letter"}}},
    "policy_model": {
        "responses_api_models": {
            "openai_model": {
                "entrypoint": "app.py",
                "openai_base_url": "http://user:hunter2-long@127.0.0.1:9/v1",
                "openai_api_key": KEY,
                "openai_model": "gpt-4.1-mini",
                "max_tries": 7,
            }
        }
    },
    "policy_base_url": "http://user:hunter2-long@127.0.0.1:9/v1",
    "policy_api_key": KEY,
    "policy_model_name": "gpt-4.1-mini",
    "shared": 1,
}


def _config(tree: Mapping[str, Any], origin: str = "override") -> RunConfig:
    origins = dict.fromkeys(tree, f"{origin}:1" if origin == "env.yaml" else origin)
    return RunConfig(tree, (), origins, collect_secrets(tree))


def _compare(
    tree: Mapping[str, Any], origin: str = "override", running: Mapping[str, Any] = RUNNING
) -> None:
    hidden = _config(running).hidden()
    refuse_differences(_config(tree, origin), hidden, secret_marks(running, hidden), URL)


def _policy(**settings: Any) -> dict[str, Any]:
    return {"policy_model": {"responses_api_models": {"openai_model": settings}}}


def _leaves(tree: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(tree, dict):
        return [path]
    return [leaf for key, below in tree.items() for leaf in _leaves(below, (*path, key))]


def _at(tree: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for part in path[:-1]:
        tree = tree[part]
    return tree


def test_what_the_servers_have_may_be_asked_for() -> None:
    _compare(RUNNING)


@given(path=st.sampled_from(_leaves(RUNNING)), other=st.integers(8, 99) | st.text(min_size=1))
def test_every_value_that_differs_is_refused_by_its_key_and_no_secret_shows(
    path: tuple[str, ...], other: object
) -> None:
    asked = copy.deepcopy(RUNNING)
    _at(asked, path)[path[-1]] = other

    with pytest.raises(ConfigMistake) as refused:
        _compare(asked)

    assert ".".join(path) in refused.value.what
    assert KEY not in str(refused.value)
    assert "hunter2" not in str(refused.value)


@given(path=st.sampled_from([leaf for leaf in _leaves(RUNNING) if len(leaf) > 1]))
def test_a_server_named_whole_lacks_nothing_that_the_running_one_has(path: tuple[str, ...]) -> None:
    asked = copy.deepcopy(RUNNING)
    del _at(asked, path)[path[-1]]
    partial = "entrypoint" not in _at(asked, path)

    if partial:
        _compare(asked)  # a change of some settings, and these are equal
    else:
        with pytest.raises(ConfigMistake, match="not set here"):
            _compare(asked)


@pytest.mark.parametrize(
    "asked",
    [
        _policy(openai_model="gpt-4.1-mini"),
        _policy(openai_api_key=KEY),
        {"head_server": {"port": 1}, "telemetry": {"metrics": {"enabled": True}}},
        {"responses_create_params": {"temperature": 0.5}},
        {"observability_enabled": False},
        {"a_value_that_own_settings_refer_to": 1},
    ],
    ids=["equal", "equal-secret", "own-sections", "own-parameters", "a-default", "own-value"],
)
def test_what_is_equal_or_the_drivers_own_passes(asked: dict[str, Any]) -> None:
    _compare(asked)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "model": ({"policy_model_name": "m"}, "policy_model_name is 'm' here and 'gpt-4.1-mini' in"),
    "key": ({"policy_api_key": "sk-another-1234"}, "policy_api_key is not the same here and in"),
    "password": (
        {"policy_base_url": "http://user:hunter3-long@127.0.0.1:9/v1"},
        "policy_base_url is not the same here and in",
    ),
    "url-without-password": (
        {"policy_base_url": "http://127.0.0.1:9/v1"},
        "policy_base_url is not the same here and in",
    ),
    "capture": (
        {"observability_enabled": True},
        "observability_enabled is True here and not set in",
    ),
    "value-others-refer-to": ({"shared": 2}, "shared is 2 here and 1 in"),
    "model-type": (
        {"policy_model": {"responses_api_models": {"local_model": {"entrypoint": "app.py"}}}},
        "policy_model is 'responses_api_models/local_model' here and "
        "'responses_api_models/openai_model' in",
    ),
    "server-that-does-not-run": (
        {"tools": {"resources_servers": {"workplace_tools": {"entrypoint": "app.py"}}}},
        "tools is 'resources_servers/workplace_tools' here and not set in",
    ),
    "setting": (
        {"mcqa": {"resources_servers": {"mcqa": {"grading_mode": "boxed"}}}},
        "mcqa.resources_servers.mcqa.grading_mode is 'boxed' here and 'letter' in",
    ),
}


@pytest.mark.parametrize(("asked", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_differs_is_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigMistake) as refused:
        _compare(asked)

    assert f"{said} the running servers at {URL}" in refused.value.what


def _is_refused(compare: Callable[[], None]) -> bool:
    try:
        compare()
    except ConfigMistake:
        return True
    return False


@pytest.mark.parametrize(
    ("running", "origin", "refused"),
    [
        (RUNNING, "env.yaml", True),
        ({"mcqa": RUNNING["mcqa"]}, "env.yaml", False),
        ({"mcqa": RUNNING["mcqa"]}, "--model", True),
    ],
    ids=["differs", "not-there-in-the-servers", "asked-for-by-a-flag"],
)
def test_credentials_that_merely_lie_in_env_yaml_are_refused_only_where_they_differ(
    running: dict[str, Any], origin: str, refused: bool
) -> None:
    assert _is_refused(lambda: _compare({"policy_model_name": "m"}, origin, running)) is refused


def test_servers_that_tell_no_marks_are_compared_by_what_they_show() -> None:
    hidden = _config(RUNNING).hidden()

    refuse_differences(_config(RUNNING), hidden, None, URL)
    with pytest.raises(ConfigMistake, match="policy_model_name"):
        refuse_differences(_config({"policy_model_name": "m"}), hidden, None, URL)


def test_a_mark_tells_too_little_to_find_a_secret_by() -> None:
    marks = secret_marks(RUNNING, _config(RUNNING).hidden())

    assert set(marks) == {
        "policy_api_key",
        "policy_base_url",
        "policy_model.responses_api_models.openai_model.openai_api_key",
        "policy_model.responses_api_models.openai_model.openai_base_url",
    }
    assert all(len(mark) * 4 == 20 for mark in marks.values())
