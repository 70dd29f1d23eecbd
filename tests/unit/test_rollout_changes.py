"""What may differ between two sessions of a run: where its model is, never what is asked."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.rollouts.changes import changes_since, moves_since
from nemo_gym.rollouts.manifest import Inputs, Manifest, Selection

MODEL = ("policy_model", "responses_api_models", "openai_model")
AGENT = ("mcqa_agent", "responses_api_agents", "simple_agent")


def _manifest(config: dict[str, Any]) -> Manifest:
    return Manifest("run", Inputs(("rows.jsonl",), 1, 1, "0"), Selection("a", None, 1), config)


def _at(*path: str, value: object) -> dict[str, Any]:
    tree: dict[str, Any] = {path[-1]: value}
    for key in reversed(path[:-1]):
        tree = {key: tree}
    return tree


def _compared(before: dict[str, Any], after: dict[str, Any]) -> tuple[list[str], list[str]]:
    old, new = _manifest(before), _manifest(after)
    return changes_since(old, new, "0"), moves_since(old, new)


@pytest.mark.parametrize(
    ("key", "before", "after"),
    [
        ("openai_base_url", "http://a/v1", "http://b/v1"),
        ("openai_base_url", ["http://a/v1"], ["http://a/v1", "http://b/v1"]),
        ("base_url", "http://a/v1", "http://b/v1"),
        ("idle_timeout_s", 600, 60),
        ("connect_timeout_s", 10, 1),
        ("max_tries", 7, 20),
        ("retry_for_s", 60, 600),
        ("max_connections", 4096, 16),
    ],
)
def test_how_a_model_is_reached_may_change_and_is_told(
    key: str, before: object, after: object
) -> None:
    there = _at(*MODEL, key, value=before), _at(*MODEL, key, value=after)

    assert _compared(*there) == ([], [f"{'.'.join(MODEL)}.{key}: {before} → {after}"])


def test_another_key_is_no_change_and_shows_nowhere() -> None:
    one, other = ({"policy_api_key": f"sk-{name}-planted"} for name in ("old", "new"))

    assert _compared(one, other) == ([], [])
    assert _compared({}, other) == ([], ["policy_api_key: not set → ***"])


@pytest.mark.parametrize(
    "path",
    [
        (*MODEL, "openai_model"),
        (*MODEL, "extra_body", "base_url"),
        (*MODEL, "default_params"),
        (*MODEL, "database_url"),
        (*AGENT, "base_url"),
        (*AGENT, "max_tries"),
        ("policy_model_name",),
        ("responses_create_params", "temperature"),
        ("base_url",),
    ],
)
def test_what_is_asked_may_not_change(path: tuple[str, ...]) -> None:
    changes, moves = _compared(_at(*path, value="a"), _at(*path, value="b"))

    assert changes == [f"{'.'.join(path)}: a → b"]
    assert moves == []


def test_a_url_may_be_said_elsewhere_and_referred_to() -> None:
    before, after = (
        {**_at(*MODEL, "openai_base_url", value=url), "urls": {"mine": url}, "grader": grader}
        for url, grader in (("http://a", "x"), ("http://b", "y"))
    )
    changes, moves = _compared(before, after)

    assert changes == ["grader: x → y"]
    assert moves == [f"{'.'.join(MODEL)}.openai_base_url: http://a → http://b"]


def test_what_a_reference_says_to_another_server_may_not_change() -> None:
    before, after = (
        _at(*MODEL, "base_url", value=url) | _at(*AGENT, "judge", value=url) for url in "ab"
    )

    assert _compared(before, after)[0] == [f"{'.'.join(AGENT)}.judge: a → b"]


_KEYS = st.sampled_from(["base_url", "openai_model", "max_tries", "port", "x"])
_SETTINGS = st.dictionaries(_KEYS, st.integers(0, 3) | st.sampled_from(["a", "b"]))


@given(_SETTINGS, _SETTINGS)
def test_each_difference_is_a_change_or_a_move_or_a_place_of_our_own(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    changes, moves = _compared(_at(*MODEL, value=before), _at(*MODEL, value=after))
    told = {line.partition(": ")[0].rpartition(".")[2] for line in (*changes, *moves)}
    absent = object()

    assert told == {
        key
        for key in before.keys() | after.keys()
        if before.get(key, absent) != after.get(key, absent) and key != "port"
    }
    assert len(told) == len(changes) + len(moves)
