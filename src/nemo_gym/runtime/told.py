"""Mistakes that one process finds and another tells: as JSON, and with the place they come from."""

from collections.abc import Mapping, Sequence

from nemo_gym.config.document import dotted
from nemo_gym.config.problems import one_a_line
from nemo_gym.config.resolved import RunConfig
from nemo_gym.config.schema import CREDENTIAL_KEYS
from nemo_gym.errors import Doubt, UserMistake

__all__ = ["as_one", "mistake_of", "placed", "told"]

_DOUBT = "doubt"


def told(mistake: UserMistake) -> dict[str, str | None]:
    """Return a mistake as a JSON object."""
    said = {"what": mistake.what, "where": mistake.where, "mend": mistake.mend}
    return {**said, "kind": _DOUBT} if isinstance(mistake, Doubt) else said


def mistake_of(value: Mapping[str, str | None]) -> UserMistake:
    """Return the mistake of a JSON object."""
    kind = Doubt if value.get("kind") == _DOUBT else UserMistake
    return kind(str(value["what"]), where=value["where"], mend=value["mend"])


def placed(mistake: UserMistake, config: RunConfig) -> UserMistake:
    """Return a mistake about `NAME.SETTING` of a server with where that setting was given."""
    for server in config.servers:
        name, _, setting = (mistake.where or "").rpartition(".")
        if server.name == name:
            path = dotted((name, server.kind, server.implementation, setting))
            value = server.settings.get(setting)
            from_env = [key for key in CREDENTIAL_KEYS if value and config.tree.get(key) == value]
            key = next((each for each in (*from_env, path) if each in config.origins), None)
            where = f"{config.origins[key]} ({key})" if key else path
            kind = Doubt if isinstance(mistake, Doubt) else UserMistake
            return kind(mistake.what, where=where, mend=mistake.mend)
    return mistake


def as_one(mistakes: Sequence[UserMistake]) -> UserMistake:
    """Return one mistake that says all of several; there is at least one."""
    return UserMistake(
        "\n  ".join(each.what for each in mistakes),
        where=one_a_line(each.where for each in mistakes if each.where) or None,
        mend=one_a_line(each.mend for each in mistakes if each.mend) or None,
    )
