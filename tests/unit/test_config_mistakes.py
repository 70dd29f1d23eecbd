"""Every way to get a configuration wrong: what the message says, where it points, how to mend."""

from pathlib import Path

import pytest

from nemo_gym.config.load import ConfigRequest, check_run_config
from nemo_gym.errors import UserMistake
from support.config_files import OTHER_MODEL, ask, write_root

MCQA = "mcqa.resources_servers.mcqa"

# Override, what the message holds, what the remedy holds.
OVERRIDES = {
    "missing-key-without-sign": ("nonsense=1", "there is no key nonsense", "++nonsense"),
    "missing-key-near-a-known-one": (
        "observabilty_enabled=true",
        "did you mean 'observability_enabled'?",
        "observability_enabled=…",
    ),
    "missing-nested-key": (
        "head_server.prot=1",
        "did you mean 'head_server.port'?",
        "head_server.port",
    ),
    "read-by-nothing-even-with-plus-plus": (
        "++model_call_capture_dri=/x",
        "nothing reads model_call_capture_dri (did you mean 'model_call_capture_dir'?)",
        "++model_call_capture_dir=…",
    ),
    "read-by-nothing-near-nothing": ("++zzz=1", "nothing reads zzz", "leave it out"),
    "unknown-setting-of-a-server": (
        f"++{MCQA}.max_trise=2",
        f"did you mean '{MCQA}.max_tries'?",
        f"++{MCQA}.max_tries=…",
    ),
    "setting-put-on-the-name-of-a-server": (
        "++mcqa.port=1",
        f"did you mean '{MCQA}.port'?",
        f"++{MCQA}.port=…",
    ),
    "section-with-an-unknown-key": (
        "++head_server={prt: 1}",
        "nothing reads head_server.prt (did you mean 'head_server.port'?)",
        "head_server.port",
    ),
    "unknown-telemetry": (
        "++telemetry.metrics.enable=true",
        "telemetry.metrics.enabled",
        "enabled",
    ),
    "add-what-exists": (
        "+policy_model_name=x",
        "policy_model_name exists already",
        "write policy_",
    ),
    "delete-what-is-not-there": (
        "~policy_modle_name",
        "did you mean 'policy_model_name'?",
        "~policy",
    ),
    "delete-with-a-value": ("~mcqa=1", "~mcqa takes no value", "write ~mcqa"),
    "through-a-single-value": (
        "++policy_model_name.x=1",
        "policy_model_name is a single value",
        "as a whole",
    ),
    "name-of-a-component": ("mcqa", "is not an override", "--resources-server mcqa"),
    "no-value": ("observability_enabled", "is not an override", "key=value"),
    "no-key": ("=1", "is not an override", "key=value"),
    "empty-part": ("++a..b=1", "is not an override", "key=value"),
    "malformed-value": ("observability_enabled=[1", "is not valid YAML", "quotes"),
    "wrong-type-bool": (
        "observability_enabled=3",
        "must be true or false, and is 3",
        "true or false",
    ),
    "wrong-type-int": (
        "head_server.port=abc",
        "must be a whole number from 0 to 65535 or null, and is 'abc'",
        "whole number",
    ),
    "bool-is-no-number": (
        "head_server.port=true",
        "must be a whole number from 0 to 65535 or null, and is true",
        "whole",
    ),
    "wrong-type-text": ("policy_model_name=4", "must be text or null, and is 4", "in quotes"),
    "wrong-type-section": ("++telemetry=on", "telemetry must be a section of keys", "section"),
    "wrong-type-of-a-server-setting": (
        f"++{MCQA}.max_tries=many",
        f"{MCQA}.max_tries must be a whole number from 1 up, and is 'many'",
        "whole number",
    ),
    "wrong-type-of-a-runtime-setting": (f"++{MCQA}.port=x", f"{MCQA}.port must be", "whole number"),
    "port-out-of-range": (
        "head_server.port=70000",
        "from 0 to 65535 or null, and is 70000",
        "0 to",
    ),
    "port-of-a-server-out-of-range": (
        f"++{MCQA}.port=-1",
        "must be a whole number from 0",
        "65535",
    ),
    "section-of-a-wrong-kind": (
        f"++{MCQA}.limits=5",
        f"{MCQA}.limits must be a section of keys, and is 5",
        "a section of keys",
    ),
    "wrong-value-in-a-section": (
        f"++{MCQA}.limits.most=0",
        f"{MCQA}.limits.most must be a whole number from 1 up, and is 0",
        "from 1 up",
    ),
    "number-beyond-64-bits": (
        f"++{MCQA}.max_tries=99999999999999999999",
        "holds a whole number of more than 64 bits",
        "quote it",
    ),
    "number-beyond-64-bits-written-otherwise": (
        "++model_call_capture_max_body_bytes=1e300",
        "must be a whole number from 1 up",
        "from 1 up",
    ),
    "text-of-a-wrong-shape-told-where-a-reference-leads": (
        "policy_base_url=ftp://h",
        "some_model.base_url must be a URL, and is 'ftp://h'",
        "give policy_base_url a URL",
    ),
    "text-of-a-wrong-shape-with-a-secret": (
        "policy_base_url=ftp://user:passphrase@h",
        "some_model.base_url must be a URL, and is a value",
        "give policy_base_url a URL",
    ),
    "interpreter-that-is-none": (
        f"++{MCQA}.python=/no/python",
        f"{MCQA}.python is '/no/python', which is no program",
        "virtual environment",
    ),
    "entrypoint-that-is-not-there": (
        f"++{MCQA}.entrypoint=main.py",
        "resources_servers/mcqa has no entrypoint main.py",
        "main.py, or mend the key 'entrypoint'",
    ),
    "number-below-its-limit": (
        f"++{MCQA}.max_tries=0",
        f"{MCQA}.max_tries must be a whole number from 1 up, and is 0",
        "from 1 up",
    ),
    "word-outside-a-fixed-list": (
        f"++{MCQA}.style=wrod",
        f"{MCQA}.style must be one of 'letter', 'word', and is 'wrod'",
        "one of 'letter', 'word'",
    ),
    "one-wrong-of-a-list": (
        f"++{MCQA}.weights=[1, x]",
        f"{MCQA}.weights must be a list (a whole number each), and is a list with 'x'",
        "a whole number each",
    ),
    "interval-of-nothing": (
        "++telemetry.metrics.sample_interval_s=0",
        "must be a number above 0 and up to 3600, and is 0",
        "above 0",
    ),
    "interval-without-end": (
        "++telemetry.metrics.sample_interval_s=.inf",
        "must be a number above 0 and up to 3600, and is inf",
        "up to 3600",
    ),
    "share-above-all": (
        "++telemetry.traces.sample_ratio=1.5",
        "must be a number from 0 to 1, and is 1.5",
        "0 to 1",
    ),
    "capture-without-a-directory": (
        "++observability_enabled=true",
        "model_call_capture_dir is not set",
        '++model_call_capture_dir="$(pwd)/',
    ),
    "captured-bodies-of-nothing": (
        "++model_call_capture_max_body_bytes=0",
        "model_call_capture_max_body_bytes must be a whole number from 1 up, and is 0",
        "from 1 up",
    ),
    "ring": (
        "++policy_base_url=${policy_base_url}",
        "ring: policy_base_url → policy_base_url",
        "value of its own",
    ),
    "reference-to-nothing": (
        "++policy_base_url=${polcy_model_name}",
        "polcy_model_name, which is not set (did you mean 'policy_model_name'?)",
        "++polcy_model_name",
    ),
    "unset-variable": (
        "++policy_base_url=${oc.env:NO_SUCH_VAR}",
        "environment variable NO_SUCH_VAR is not set",
        "export NO_SUCH_VAR",
    ),
    "unknown-resolver": ("++policy_base_url=${oc.nope:x}", "'${oc.nope:…}'", "oc.env"),
    "open-reference": ("++policy_base_url='${policy_model_name'", "no closing '}'", "${key}"),
    "value-still-open": (
        "++policy_model_name='???'",
        "policy_model_name has no value yet",
        "policy_model_name=…",
    ),
}


@pytest.mark.parametrize(("override", "what", "mend"), OVERRIDES.values(), ids=OVERRIDES)
def test_a_wrong_override_is_one_mistake(
    tmp_path: Path, override: str, what: str, mend: str
) -> None:
    mistake = _only(ask(write_root(tmp_path), override))

    assert what in mistake.what
    assert mend in (mistake.mend or "")
    key = override.partition("=")[0]
    assert key.strip("+~").split(".")[0].split("=")[0] in (mistake.where or mistake.what)


# Text of a further file, what the message holds, where it points.
FILES = {
    "malformed": ("a: [1\nb: 2\n", "not valid YAML", "extra.yaml:2, column 2"),
    "unknown-key-of-a-closed-section": (
        "head_server:\n  prt: 1\n",
        "'head_server.port'",
        "extra.yaml:2",
    ),
    "slip-at-the-top": (
        "\nobservabilty_enabled: true\n",
        "'observability_enabled'",
        "extra.yaml:2",
    ),
    "slip-in-a-server": (
        "mcqa:\n  resources_servers:\n    mcqa:\n      max_tires: 3\n",
        f"'{MCQA}.max_tries'",
        "extra.yaml:4",
    ),
    "wrong-type": (
        "\n\nhead_server: {port: x}\n",
        "must be a whole number from 0 to 65535 or null",
        "extra.yaml:3",
    ),
    "relative-capture-directory": (
        "observability_enabled: true\nmodel_call_capture_dir: results/x\n",
        "'results/x', which is not absolute",
        "extra.yaml:2",
    ),
    "server-defined-twice": (
        OTHER_MODEL,
        "policy_model is defined twice: as responses_api_models/some_model and as "
        "responses_api_models/other_model",
        "extra.yaml:3",
    ),
    "server-of-two-kinds": (
        "mcqa: {responses_api_agents: {simple_agent: {}}}\n",
        "mcqa is defined twice",
        "extra.yaml:1",
    ),
    "mistyped-kind": (
        "x:\n  resource_servers:\n    mcqa: {}\n",
        "'resources_servers'",
        "extra.yaml:2",
    ),
    "unknown-implementation": (
        "x:\n  resources_servers:\n    mqca: {}\n",
        "no resources server 'mqca' (did you mean 'mcqa'?)",
        "extra.yaml:3 (x.resources_servers.mqca)",
    ),
    "no-entrypoint": (
        "x: {resources_servers: {mcqa: {entrypoint: main.py}}}\n",
        "resources_servers/mcqa has no entrypoint main.py",
        "extra.yaml:1",
    ),
    "settings-are-no-section": (
        "x: {resources_servers: {mcqa: 3}}\n",
        "not a section of settings",
        "extra.yaml:1",
    ),
    "no-implementation": (
        "x: {resources_servers: {}}\n",
        "names no implementation",
        "extra.yaml:1",
    ),
    "unfit-name": (
        "a/b: {resources_servers: {mcqa: {}}}\n",
        "cannot be the name of a server",
        "extra.yaml:1",
    ),
    "reference-to-no-server": (
        "x:\n  responses_api_agents:\n    simple_agent:\n      resources_server:\n"
        "        {type: resources_servers, name: mcqb}\n",
        "x wants the resources server 'mcqb', which this configuration does not define "
        "(did you mean 'mcqa'?)",
        "extra.yaml:5",
    ),
    "reference-to-a-server-of-another-kind": (
        "x: {responses_api_agents: {simple_agent: {model_server: "
        "{type: responses_api_models, name: mcqa}}}}\n",
        "x wants the model server 'mcqa'",
        "extra.yaml:1",
    ),
    "section-in-a-text": ("x: ${mcqa}/v1\n", "puts a whole section into a text", "extra.yaml:1"),
}


@pytest.mark.parametrize(("text", "what", "where"), FILES.values(), ids=FILES)
def test_a_wrong_file_is_one_mistake_that_points_into_it(
    tmp_path: Path, text: str, what: str, where: str
) -> None:
    mistake = _only(ask(write_root(tmp_path), config=text))

    assert what in mistake.what
    assert where in (mistake.where or "")
    assert mistake.mend


def test_missing_credentials_are_one_mistake_with_the_three_lines_to_write(tmp_path: Path) -> None:
    mistake = _only(ask(write_root(tmp_path, env=None)))
    mend = mistake.mend or ""

    assert "policy_base_url, policy_api_key and policy_model_name are not set" in mistake.what
    assert "there is no env.yaml" in mistake.what
    assert "some_model.yaml:6 (policy_model.responses_api_models.some_model.api_key)" in (
        mistake.where or ""
    )
    assert str(tmp_path) in mend
    for key in ("policy_base_url: ", "policy_api_key: ", "policy_model_name: "):
        assert key in mend
    assert "--model-url URL" in mend


def test_one_missing_credential_is_named_alone(tmp_path: Path) -> None:
    write_root(tmp_path, env="policy_base_url: http://h\npolicy_model_name: m\n")
    mistake = _only(ask(tmp_path))

    assert mistake.what == "policy_api_key is not set"
    assert "policy_base_url" not in (mistake.mend or "")


def test_a_malformed_env_yaml_is_told_by_line(tmp_path: Path) -> None:
    mistake = _only(ask(write_root(tmp_path, env="policy_api_key: 'sk-secret\npolicy: 1\n")))

    assert (mistake.where or "").startswith("env.yaml:")
    assert "sk-secret" not in str(mistake)


@pytest.mark.parametrize("value", ["12345678", "[sk-a, sk-b]", "{a: sk-b}"])
def test_a_secret_of_a_wrong_type_is_not_shown(tmp_path: Path, value: str) -> None:
    mistake = _only(ask(write_root(tmp_path), f"policy_api_key={value}"))

    assert "policy_api_key must be text or null" in mistake.what
    assert "sk-" not in str(mistake)
    assert "1234" not in str(mistake)


@pytest.mark.parametrize(
    ("request_part", "what", "mend"),
    [
        ({"resources_servers": ("mqca",)}, "'mqca' (did you mean 'mcqa'?)", "resources-servers"),
        ({"model_types": ("some-model",)}, "did you mean 'some_model'?", "gym list models"),
        ({"agent_types": ("simpel_agent",)}, "did you mean 'simple_agent'?", "gym list agents"),
        ({"model_types": ("mcqa",)}, "mcqa is a component of resources_servers", "gym list"),
        ({"model_types": ("../x",)}, "no model type '../x'", "gym list"),
        ({"agent_types": ("simple_agent",)}, "no configuration of its own", "write"),
        ({"config_files": ("nope.yaml",)}, "there is no file nope.yaml", "check the path"),
        ({"config_files": ("env.yml",)}, "did you mean 'env.yaml'?", "check the path"),
        ({"config_files": ("resources_servers",)}, "is a directory", "name a file"),
        ({"search_dirs": (Path("nowhere"),)}, "there is no directory nowhere", "check the path"),
    ],
)
def test_a_source_that_is_not_there_is_one_mistake(
    tmp_path: Path, request_part: dict[str, tuple[str, ...]], what: str, mend: str
) -> None:
    write_root(tmp_path)
    mistake = _only(ConfigRequest(working_dir=tmp_path, **request_part))  # type: ignore[arg-type]

    assert what in mistake.what
    assert mistake.where
    assert mend in (mistake.mend or "")


def _only(request: ConfigRequest) -> UserMistake:
    mistakes = check_run_config(request)
    assert len(mistakes) == 1, [str(mistake) for mistake in mistakes]
    return mistakes[0]
