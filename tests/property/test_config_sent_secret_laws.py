"""Headers and query parameters sent to a provider are secret whatever they are called."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.config.secrets import collect_secrets, hide, is_secret_path

_HOLDERS = ["extra_headers", "default_headers", "headers", "extraHeaders", "extra_query"]
_name = st.from_regex(r"\A[A-Za-z]{1,8}(-[A-Za-z]{1,8}){0,2}\Z").map(lambda name: f"X-{name}")
_value = st.text("abcXYZ019=+/", max_size=12).map(lambda text: f"s3cr3t{text}")


@given(st.sampled_from(_HOLDERS), _name, _value)
def test_no_value_that_is_sent_along_is_shown(holder: str, name: str, value: str) -> None:
    settings = {"entrypoint": "app.py", holder: {name: value}, "note": f"we send {value}"}
    tree = {"policy": {"responses_api_models": {"vllm_model": settings}}}

    assert "s3cr3t" not in json.dumps(hide(tree))
    assert value in collect_secrets(tree)
    assert is_secret_path(["policy", "responses_api_models", "vllm_model", holder, name])


@given(_name, _value)
def test_the_token_after_a_scheme_is_secret_without_it_too(name: str, token: str) -> None:
    tree = {"extra_headers": {name: f"Bearer {token}"}, "note": f"we send {token}"}

    assert "s3cr3t" not in json.dumps(hide(tree))


@pytest.mark.parametrize("value", ["X-My-Auth: s3cr3t", ["s3cr3t"], [["X-My-Auth", "s3cr3t"]]])
def test_headers_written_in_a_wrong_way_are_not_shown_either(value: object) -> None:
    assert "s3cr3t" not in json.dumps(hide({"extra_headers": value}))


def test_headers_that_are_the_same_for_everyone_and_column_names_are_shown() -> None:
    tree = {
        "extra_headers": {"Anthropic-Beta": "files-api-2025-04-14", "Accept": "application/json"},
        "headers": ["question", "answer"],
        "max_tokens": 512,
    }

    assert hide(tree) == tree
