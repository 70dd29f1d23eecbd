"""The collector of a serving process."""

import subprocess
import sys


def test_what_is_loaded_is_out_of_the_collectors_sight() -> None:
    script = (
        "import gc; from nemo_gym.runtime.garbage import settle_garbage\n"
        "before = len(gc.get_objects()); settle_garbage()\n"
        "print(before, gc.get_freeze_count(), len(gc.get_objects()))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    before, frozen, seen = map(int, ran.stdout.split())

    assert frozen >= before * 0.9
    assert seen < before * 0.1
