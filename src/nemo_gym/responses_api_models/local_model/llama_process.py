"""The process that holds the model: settings in on standard input, llama.cpp's address out.

One JSON line of settings comes in; one JSON line, `{"address": …}` or `{"error": …}`, goes out.
Everything that llama.cpp says goes to standard error. The process ends when its standard input
does, so that it never outlives the server that started it, however that one ends.

A process of its own, because llama.cpp holds Python's interpreter lock while it loads a model, and
because closing it while it generates may wait forever (docs/decisions/070-llama-process.md).
"""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["main"]

# Settings that not every release of xllamacpp has.
_WHERE_KNOWN: Mapping[str, object] = {
    "hostnames": ["127.0.0.1"],
    "hostname": "127.0.0.1",
    "ui": False,
    "webui": False,
    "endpoint_slots": False,
    "endpoint_props": False,
    "offline": True,
}


def main() -> int:
    """Serve until standard input ends; the exit code is 1 when the model cannot be loaded."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # llama.cpp writes some of its log to standard output.
    os.dup2(2, 1)
    settings = json.loads(sys.stdin.readline())
    try:
        server = _serve(settings)
    except (ImportError, RuntimeError, AttributeError, TypeError) as problem:
        # The last two: a release of xllamacpp whose settings have other names.
        print(json.dumps({"error": f"{problem}"}), file=answer, flush=True)
        return 1
    print(json.dumps({"address": server.listening_address}), file=answer, flush=True)
    sys.stdin.read()
    # Not by the ordinary way: the destructor of a server that generates does not return.
    os._exit(0)


def _serve(settings: Mapping[str, Any]) -> Any:
    import xllamacpp  # noqa: PLC0415 - its absence is an answer

    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.model_alias = {settings["alias"]}
    params.port = 0
    params.n_ctx = settings["context_size"] * settings["slots"]
    params.n_parallel = settings["slots"]
    params.n_threads_http = settings["http_threads"]
    params.n_gpu_layers = settings["gpu_layers"]
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    params.cpuparams.poll = params.cpuparams_batch.poll = settings["poll"]
    params.verbosity = settings["verbosity"]
    for name, value in _WHERE_KNOWN.items():
        if hasattr(params, name):
            setattr(params, name, value)
    server = xllamacpp.Server(params)
    if not server.listening_address.startswith("http://127.0.0.1:"):
        raise RuntimeError(f"it listens at {server.listening_address}, not on loopback")
    return server


if __name__ == "__main__":
    sys.exit(main())
