"""References to keys that nobody set: what is missing, who wants it, and what to write."""

from collections.abc import Mapping

from nemo_gym.config.check_root import known_root_keys
from nemo_gym.config.document import dotted
from nemo_gym.config.merge import Layers
from nemo_gym.config.nearest import did_you_mean, nearest_key
from nemo_gym.config.problems import Problems, one_a_line
from nemo_gym.config.schema import CREDENTIAL_KEYS

__all__ = ["note_wanted"]

_EXAMPLES = {
    "policy_base_url": "https://api.openai.com/v1",
    "policy_api_key": "sk-…",
    "policy_model_name": "gpt-4.1-mini",
}
_FLAGS = {
    "policy_base_url": "--model-url URL",
    "policy_api_key": "--model-api-key KEY",
    "policy_model_name": "--model NAME",
}


def note_wanted(
    wanted: Mapping[str, tuple[str, ...]],
    layers: Layers,
    problems: Problems,
    *,
    env_exists: bool,
    env_folder: str,
) -> None:
    """Note every key that a reference names and nobody set; the credentials as one mistake."""
    credentials = [key for key in CREDENTIAL_KEYS if key in wanted]
    if credentials:
        _note_credentials(credentials, wanted, problems, env_exists, env_folder)
    known = {dotted(path) for path in layers.origins} | known_root_keys()
    for key, places in wanted.items():
        if key not in credentials:
            problems.add(
                f"a reference names {key}, which is not set{did_you_mean(nearest_key(key, known))}",
                where=one_a_line(places),
                mend=f"set {key} in a --config file or in env.yaml, or add ++{key}=…",
            )


def _note_credentials(
    keys: list[str],
    wanted: Mapping[str, tuple[str, ...]],
    problems: Problems,
    env_exists: bool,
    env_folder: str,
) -> None:
    places = [place for key in keys for place in wanted[key]]
    missing = " and ".join(keys) if len(keys) < 3 else f"{', '.join(keys[:-1])} and {keys[-1]}"
    is_or_are = "is" if len(keys) == 1 else "are"
    shown = keys if env_exists else list(CREDENTIAL_KEYS)
    lines = [f"{key}: {_EXAMPLES[key]}" for key in shown]
    flags = " ".join(_FLAGS[key] for key in keys)
    file = "env.yaml" if env_exists else f"a file env.yaml in {env_folder}"
    problems.add(
        f"{missing} {is_or_are} not set" + ("" if env_exists else ": there is no env.yaml"),
        where=one_a_line(places),
        mend=one_a_line([f"write into {file}:", *lines, f"or give {flags}"]),
    )
