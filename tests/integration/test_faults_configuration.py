"""A configuration that is wrong: one message with what, where and how to mend; nothing starts."""

from pathlib import Path

import pytest

from support.eval_command import environ_of
from support.gym_command import Ended, gym

KEY = "sk-planted-in-env-yaml-0815"
GOOD = f"policy_base_url: http://127.0.0.1:9\npolicy_api_key: {KEY}\npolicy_model_name: m\n"
EVALUATE = (
    *("eval", "run", "--resources-server", "mcqa", "--model-type", "openai_model"),
    *("--agent", "mcqa_simple_agent", "--output", "x.jsonl"),
    *("--input", "resources_servers/mcqa/data/example.jsonl"),
)


def _evaluate(folder: Path, env_yaml: str | bytes | None, *more: str) -> Ended:
    if env_yaml is not None:
        text = env_yaml if isinstance(env_yaml, bytes) else env_yaml.encode()
        (folder / "env.yaml").write_bytes(text)
    return gym(*EVALUATE, *more, cwd=folder, environ=environ_of(folder))


def _is_one_message(ended: Ended, folder: Path) -> None:
    """Assert what holds for every mistake of a user."""
    assert ended.code == 2, ended.err
    assert ended.out == ""
    assert ended.err.count("error: ") == 1
    assert "\n  where: " in ended.err
    assert "\n  mend:  " in ended.err
    assert "Traceback" not in ended.err
    assert KEY not in ended.err
    assert {path.name for path in folder.iterdir()} <= {"env.yaml", "state"}


def test_a_missing_env_yaml_is_told_with_the_lines_to_write(tmp_path: Path) -> None:
    ended = _evaluate(tmp_path, None)

    _is_one_message(ended, tmp_path)
    assert "there is no env.yaml" in ended.err
    assert "policy_api_key: sk-" in ended.err
    assert str(tmp_path) in ended.err


MALFORMED: dict[str, tuple[str | bytes, str]] = {
    "a bracket that is not closed": (f"{GOOD}x: [1\n", "env.yaml:5"),
    "tabs": (f"{GOOD}x:\n\ty: 1\n", "indent with spaces, not tabs"),
    "a list": ("- policy_base_url\n", "not a mapping of keys to values"),
    "a key given twice": (f"{GOOD}policy_api_key: other\n", "env.yaml:2 and env.yaml:4"),
    "bytes that are no text": (b"policy_api_key: \xff\n", "is not UTF-8 text"),
    "a reference to nothing": (GOOD.replace("http://127.0.0.1:9", "${nope}"), "names nope"),
    "references in a ring": (f"{GOOD}a: ${{b}}\nb: ${{a}}\n", "a ring"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_env_yaml_is_told_by_line(tmp_path: Path, case: str) -> None:
    text, said = MALFORMED[case]

    ended = _evaluate(tmp_path, text)

    _is_one_message(ended, tmp_path)
    assert said in ended.err


def test_an_env_yaml_of_another_system_is_read_as_it_is_meant(tmp_path: Path) -> None:
    ended = _evaluate(tmp_path, b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())

    assert "http://127.0.0.1:9" in ended.err  # the provider is not there: all was read


UNKNOWN: dict[str, tuple[tuple[str, ...], str]] = {
    "a resources server": (("--resources-server", "mcqaa"), "did you mean 'mcqa'?"),
    "a model type": (("--model-type", "opanai_model"), "did you mean 'openai_model'?"),
    "an agent type": (("--agent-type", "simpel_agent"), "did you mean 'simple_agent'?"),
    "an agent": (("--agent", "mcqa_agent"), "did you mean 'mcqa_simple_agent'?"),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_an_unknown_component_is_told_what_was_meant(tmp_path: Path, kind: str) -> None:
    options, said = UNKNOWN[kind]

    ended = _evaluate(tmp_path, GOOD, *options)

    _is_one_message(ended, tmp_path)
    assert said in ended.err


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("polcy_api_key=x", "did you mean 'policy_api_key'?"),
        ("++observabilty_enabled=true", "did you mean 'observability_enabled'?"),
        ("++policy_model.responses_api_models.openai_model.max_treis=3", "max_tries"),
        ("~polcy", "it is not set"),
    ],
)
def test_an_unknown_key_is_told_what_was_meant(tmp_path: Path, override: str, said: str) -> None:
    ended = _evaluate(tmp_path, GOOD, override)

    _is_one_message(ended, tmp_path)
    assert said in ended.err


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("++observability_enabled=maybe", "must be true or false, and is 'maybe'"),
        ("++head_server.port=99999", "a whole number from 0 to 65535"),
        ("++mcqa.resources_servers.mcqa.grading_mode=words", "one of 'letter', "),
        ("++policy_model.responses_api_models.openai_model.max_tries=0", "from 1 up, and is 0"),
        ("++policy_model.responses_api_models.openai_model.max_tries=three", "a whole number"),
        ("policy_base_url=ftp://h", "must be an http:// or https:// URL"),
        ("policy_base_url=http://h:99999", "Port out of range"),
        ("++observability_enabled=true", "model_call_capture_dir is not set"),
        ("++model_call_capture_dir=captures", "is not absolute"),
    ],
)
def test_a_value_of_the_wrong_type_is_told_by_key(tmp_path: Path, override: str, said: str) -> None:
    ended = _evaluate(tmp_path, GOOD, override)

    _is_one_message(ended, tmp_path)
    assert said in ended.err
    assert override.partition("=")[0].lstrip("+") in ended.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--num-repeats", "0"), "--num-repeats"),
        (("--limit", "-1"), "--limit"),
        (("--rollout-timeout", "nan"), "--rollout-timeout"),
        (("--temperature", "inf"), "--temperature"),
        (("--output", ""), "no name of a file"),
        (("--output", "x" * 300), "too long"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    ended = _evaluate(tmp_path, GOOD, *options)

    assert ended.code == 2, ended.err
    assert said in ended.err
    assert "Traceback" not in ended.err
    assert {path.name for path in tmp_path.iterdir()} <= {"env.yaml", "state"}
