"""Whether a component's file is being run, or imported by something that serves it."""

import sys
from pathlib import Path

__all__ = ["is_nemo_gym_fastapi_entrypoint"]


def is_nemo_gym_fastapi_entrypoint(file: str) -> bool:
    """Return whether `file` is the script that this process runs, rather than an import of it."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return script is not None and Path(script).resolve() == Path(file).resolve()
