"""The traceback of a bug, with every secret that this process may know taken out."""

import contextlib
import os
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from nemo_gym.config.document import read_document
from nemo_gym.config.secrets import Redactor, collect_secrets, is_secret_key, is_secret_path
from nemo_gym.errors import UserMistake

__all__ = ["redacted_traceback"]


def redacted_traceback(arguments: Sequence[str]) -> str:
    """Return the traceback of the exception being handled.

    A bug may have happened before or outside any configuration, so secrets are looked for again:
    in `env.yaml` of the working directory, in the arguments, in the environment.
    """
    return Redactor(_secrets(arguments)).redact(traceback.format_exc().rstrip())


def _secrets(arguments: Sequence[str]) -> Iterator[str]:
    with contextlib.suppress(UserMistake):  # no such file, or not one that could have been used
        yield from collect_secrets(read_document(Path("env.yaml"), "env.yaml").tree)
    for name, value in os.environ.items():
        # The shell's own names for the working directory, not for a password.
        if name not in {"PWD", "OLDPWD"} and is_secret_key(name):
            yield value
    for before, text in zip(["", *arguments], arguments, strict=False):
        key, _, value = text.partition("=")
        if is_secret_key(before.lstrip("-")):
            yield text
        elif is_secret_path(key.strip("+-~").split(".")):
            yield value
