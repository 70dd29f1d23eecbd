"""A secret planted anywhere in a configuration never shows in anything made for eyes."""

import json
import logging
from pathlib import Path
from urllib.parse import quote, quote_plus

import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from nemo_gym.config.resolved import RunConfig, ServerInstance
from nemo_gym.config.secrets import (
    HIDDEN,
    RedactingFilter,
    Redactor,
    collect_secrets,
    hide,
    is_secret_key,
)

_HERE = Path("/nowhere")
_SECRET_KEYS = [
    "api_key", "policy_api_key", "openai_api_key", "apiKey", "X-Api-Key", "hf_token", "token",
    "accessToken", "client_secret", "secret", "aws_secret_access_key", "password", "db_password",
    "Authorization", "authorization", "cookie", "private_key", "credentials", "api_keys",
    "Helicone-Auth", "Ocp-Apim-Subscription-Key", "X-Functions-Key", "x-litellm-key", "basic_auth",
    "jwt", "sig", "X-Anything-Key", "X-Signature", "connection_string",
]  # fmt: skip
_HARMLESS_KEYS = [
    "max_tokens", "max_output_tokens", "eos_token", "num_tokens", "model", "entrypoint", "host",
    "key", "keys", "monkey", "tokenizer", "secretary", "policy_base_url", "author",
    "auth", "answer_key", "sort_key", "signature",
]  # fmt: skip

# A marker no other generated text contains, so that a leak is a leak; then what is written
# differently in a URL, in JSON or in a repr.
_secret = st.text(st.sampled_from("/+ %&=:@?#\"'\\\t\u00e9~-_.ab1"), max_size=10).map(
    lambda text: f"s3cr3t{text}"
)
_plain_key = st.sampled_from([*_HARMLESS_KEYS, "a", "b", "c"])
_plain = st.none() | st.booleans() | st.integers() | st.text("abcxyz ", max_size=8)


def _around(leaf: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.recursive(
        leaf,
        lambda below: (
            st.lists(below | _plain, min_size=1, max_size=3)
            | st.dictionaries(_plain_key, below | _plain, min_size=1, max_size=3)
        ),
        max_leaves=6,
    )


@st.composite
def _planted(draw: st.DrawFn) -> tuple[dict[str, object], str]:
    """A tree with a secret under a key that says so, and elsewhere in any form."""
    secret = draw(_secret)
    nested = {"a": draw(_around(st.just(secret))), "b": secret}
    elsewhere = draw(
        _around(
            st.sampled_from(
                [secret, f"see {secret}!", f"Bearer {secret}", {secret: 1}, f"--key={secret}"]
            )
        )
    )
    url = draw(
        st.sampled_from(
            [
                f"http://user:{quote(secret, safe='')}@host/v1",
                f"https://{quote(secret, safe='')}@host",
                f"https://host/v1?key={quote_plus(secret)}&x=1",
                f"https://host/?api_key={quote(secret, safe='')}",
            ]
        )
    )
    tree = {draw(st.sampled_from(_SECRET_KEYS)): nested, "elsewhere": elsewhere, "base_url": url}
    return tree, secret


@given(_planted())
def test_nothing_shown_of_a_tree_holds_its_secret(planted: tuple[dict[str, object], str]) -> None:
    tree, secret = planted
    shown = hide(tree)

    for text in (json.dumps(shown), repr(shown), yaml.safe_dump(shown), str(shown)):
        assert "s3cr3t" not in text
    assert secret in collect_secrets(tree)


@given(_planted())
def test_a_tree_without_its_other_keys_hides_the_secret_in_its_url(
    planted: tuple[dict[str, object], str],
) -> None:
    tree, secret = planted
    alone = {"base_url": tree["base_url"]}

    assert "s3cr3t" not in json.dumps(hide(alone))
    assert secret in collect_secrets(alone)


@given(_planted())
def test_no_repr_of_a_run_shows_a_secret(planted: tuple[dict[str, object], str]) -> None:
    tree, _ = planted
    server = ServerInstance("s", "resources_servers", "s", folder=_HERE, settings=tree)
    config = RunConfig(tree, (server,), {}, collect_secrets(tree))

    for text in (repr(config), str(config), repr(server), f"{config.servers}"):
        assert "s3cr3t" not in text
    assert "s3cr3t" not in json.dumps(config.hidden())


@given(_secret, st.text(max_size=20), st.text(max_size=20))
def test_redacted_text_never_holds_a_secret_in_any_spelling(
    secret: str, before: str, after: str
) -> None:
    redactor = Redactor({secret})

    for form in (secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)):
        redacted = redactor.redact(f"{before}{form}{after}")
        assert "s3cr3t" not in redacted
        assert HIDDEN in redacted


@given(_planted())
def test_a_filtered_log_record_never_holds_a_secret(
    planted: tuple[dict[str, object], str],
) -> None:
    tree, secret = planted
    raised = ValueError(secret)
    info = (ValueError, raised, None)
    record = logging.LogRecord("n", logging.INFO, "f", 1, "calling %s", (secret,), info)

    assert RedactingFilter(Redactor(collect_secrets(tree))).filter(record)
    text = logging.Formatter().format(record)
    assert "s3cr3t" not in text
    assert "ValueError" in text


@given(st.dictionaries(_plain_key, _plain, max_size=5))
def test_a_tree_without_secrets_is_shown_as_it_is(tree: dict[str, object]) -> None:
    assume(not collect_secrets(tree))

    assert hide(tree) == tree


@given(_planted())
def test_a_run_travels_as_json_whole(planted: tuple[dict[str, object], str]) -> None:
    tree, _ = planted
    server = ServerInstance("s", "resources_servers", "s", folder=_HERE, settings=tree)
    config = RunConfig(tree, (server,), {"a": "f:1"}, collect_secrets(tree))

    assert RunConfig.from_json(config.to_json()) == config


def test_keys_are_told_apart_by_name() -> None:
    assert [key for key in _SECRET_KEYS if not is_secret_key(key)] == []
    assert [key for key in _HARMLESS_KEYS if is_secret_key(key)] == []
