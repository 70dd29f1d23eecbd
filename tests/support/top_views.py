"""A run as `gym top` shows it: figures of a middling evaluation."""

from nemo_gym.cli.top_frame import Header
from nemo_gym.telemetry.diagnosis import Figures, diagnose
from nemo_gym.telemetry.figures import RolloutFigures
from nemo_gym.telemetry.run_view import ProcessView, RolloutView, RunView, ServerView

__all__ = ["COUNTS", "HEADER", "VIEW"]

HEADER = Header("1784846522-c3c0e1", "eval run", 192.0, "results/mcqa.jsonl")
COUNTS = RolloutFigures(
    planned=1000,
    offered=476,
    resident=64,
    active=32,
    finished=400,
    failed=12,
    reward_total=204.8,
    waited_s=0.0,
    active_s=0.0,
)
VIEW = RunView(
    rollouts=RolloutView(COUNTS, 3.2, 184.0, 0.512),
    servers=(ServerView("mcqa", 3, 12.1, 0), ServerView("policy_model", 32, 12.4, 3)),
    processes=(ProcessView("driver", 1, 1.0, 3.2, 0.01, 0.12, 82 * 2**20),),
    model_calls=1648,
    model_in_flight=32,
    model_errors=3,
    model_retries=17,
    model_rate=12.4,
    model_p50_s=2.1,
    tokens_in_rate=3210.0,
    tokens_out_rate=812.0,
    tool_calls=1234,
    captured=1640,
    capture_failures=0,
    observed=True,
    diagnosis=diagnose(Figures(admission_wait_share=0.61, provider_p50_s=4.1, loop_lag_p99_ms=3)),
)
