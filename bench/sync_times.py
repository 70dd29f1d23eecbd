"""How long a sync takes just now: `python bench/sync_times.py DIR`, beside something else.

Until it is told to end (SIGTERM) it writes 16 KB, a few rows, every few milliseconds over bytes
that lie there already, syncs them, and prints median and 99th percentile as JSON.
"""

import json
import os
import signal
import sys
import tempfile
import threading
import time

PIECE = b"x" * 16384
PIECES = 64
PAUSE_S = 0.005


def main() -> None:
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    took_ms: list[float] = []
    with tempfile.TemporaryFile(dir=sys.argv[1]) as file:
        file.write(PIECE * PIECES)
        os.fsync(file.fileno())
        print("ready", flush=True)
        while not ending.wait(PAUSE_S):
            os.pwrite(file.fileno(), PIECE, len(took_ms) % PIECES * len(PIECE))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took_ms.append((time.perf_counter() - began) * 1000)
    took_ms.sort()
    at = {"p50": 0.5, "p99": 0.99}
    print(json.dumps({name: took_ms[int(len(took_ms) * part)] for name, part in at.items()}))


if __name__ == "__main__":
    main()
