"""Front door: collecting rollouts from a program.

`prepare_run` checks and plans, `PreparedRun.begin` puts the run's files in place, and `collect_run`
runs every rollout on its agent through a `nemo_gym.server_utils.ServerClient`.
"""

from nemo_gym.rollouts.collect import CollectOptions, Collector, Hooks, StopSignal
from nemo_gym.rollouts.merge import MergedRuns, merge_outputs
from nemo_gym.rollouts.outcome import FAILURE_CLASSES
from nemo_gym.rollouts.paths import RunFiles
from nemo_gym.rollouts.prepare import PreparedRun, RunRequest, prepare_run
from nemo_gym.rollouts.progress import Progress
from nemo_gym.rollouts.run import RunReport, collect_run, progress_of
from nemo_gym.rollouts.summary import AgentReport

__all__ = [
    "FAILURE_CLASSES",
    "AgentReport",
    "CollectOptions",
    "Collector",
    "Hooks",
    "MergedRuns",
    "PreparedRun",
    "Progress",
    "RunFiles",
    "RunReport",
    "RunRequest",
    "StopSignal",
    "collect_run",
    "merge_outputs",
    "prepare_run",
    "progress_of",
]
