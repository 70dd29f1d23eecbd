"""Memory follows the concurrency, never the number of rollouts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import asyncio, json, resource, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from support.rollouts import FakeAgent, collect
from nemo_gym.rollouts.collect import CollectOptions

folder, count = Path(sys.argv[1]), int(sys.argv[2])
rows = folder / "rows.jsonl"
with rows.open("w") as file:
    for n in range(count):
        row = {{"responses_create_params": {{"input": "x" * 2000}}, "n": n}}
        file.write(json.dumps(row) + "\\n")

class Forgetful(FakeAgent):
    async def post(self, *given, **options):
        answer = await super().post(*given, **options)
        self.rows.clear()
        return answer

report = asyncio.run(
    collect(folder / "x.jsonl", rows, Forgetful(), options=CollectOptions(concurrency=16))
)
assert report.finished == count
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))
"""


def _peak_bytes(folder: Path, count: int) -> int:
    folder.mkdir()
    script = _SCRIPT.format(tests=str(Path(__file__).parent.parent))
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder), str(count)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    peak: int = json.loads(done.stdout)
    return peak


@pytest.mark.slow
def test_twenty_times_the_rollouts_take_hardly_more_memory(tmp_path: Path) -> None:
    small = _peak_bytes(tmp_path / "small", 1_000)
    large = _peak_bytes(tmp_path / "large", 20_000)

    # 20,000 rows are 90 MB on disk; what is kept of each is some hundred bytes of numbers.
    assert large - small < 19_000 * 1024
