"""The bottleneck, by figures: the table of what is said when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.telemetry.diagnosis import Figures, diagnose

HEALTHY = Figures(
    admission_wait_share=0.0,
    active=32,
    provider_p50_s=0.4,
    provider_share=0.3,
    provider_errors_share=0.0,
    loop_lag_p99_ms=3,
    loop_lag_mean_ms=0.5,
    gc_share=0.01,
    cpu_share=0.3,
    cpu_wait_share=0.05,
    machine_busy_share=0.4,
    run_machine_share=0.3,
    connection_wait_share=0.0,
    commit_p99_ms=4,
    commit_share=0.01,
    output_wait_share=0.01,
    output_write_s=0.004,
    outside_share=0.69,
    outside_s=0.15,
)


def but(**changes: float | str | None) -> Figures:
    values = {name: getattr(HEALTHY, name) for name in Figures.__dataclass_fields__}
    return Figures(**{**values, **changes})


@pytest.mark.parametrize(
    ("figures", "bottleneck", "evidence", "advice"),
    [
        (HEALTHY, "none", "loop lag p99 3 ms", "nothing stands out"),
        (
            but(admission_wait_share=0.61, provider_p50_s=4.1),
            "admission",
            "rollouts waited 61 % of the time for admission; provider p50 4.1 s; loop lag p99 3 ms",
            "raise --concurrency",
        ),
        (
            but(provider_share=0.97, provider_p50_s=12.34),
            "provider",
            "the provider took 97 % of the running time; provider p50 12.3 s",
            "the provider sets the pace",
        ),
        (
            but(provider_share=0.97, provider_p50_s=1.0, rounds=37.5, admission_wait_share=0.2),
            "admission",
            "38 times as many rollouts as ran at once; rollouts waited 20 % of the time for "
            "admission; provider p50 1.0 s",
            "raise --concurrency: the provider shows no sign of being full",
        ),
        (
            but(provider_share=0.97, rounds=37.5, provider_growth=3.2),
            "provider",
            "its calls take 3.2 times as long in company",
            "the provider is full, more concurrency would only queue",
        ),
        (
            but(provider_share=0.97, rounds=37.5, provider_growth=1.6),
            "admission",
            "38 times as many",
            "no sign of being full",
        ),
        (
            but(provider_share=0.97, rounds=37.5, provider_again_share=0.05),
            "provider",
            "5 % of the tries had to be repeated",
            "the provider is full",
        ),
        (
            but(provider_share=0.97, rounds=37.5, provider_errors_share=0.05),
            "admission",
            "38 times as many",
            "no sign of being full",
        ),
        (
            but(
                provider_share=0.99,
                provider_p50_s=1.4,
                rounds=10,
                admission_wait_share=0.77,
                local_slots=2,
                calls_under_way=3.9,
            ),
            "local_model",
            "the model that this run runs works on 2 calls at once; 3.9 calls under way; "
            "provider p50 1.4 s",
            "more concurrency would only queue",
        ),
        (
            but(
                connection_wait_share=0.38,
                provider_share=0.5,
                provider_p50_s=2.7,
                local_slots=2,
                calls_under_way=15.2,
            ),
            "local_model",
            "works on 2 calls at once; 15.2 calls under way",
            "more concurrency would only queue",
        ),
        (
            but(
                provider_share=0.99,
                rounds=10,
                admission_wait_share=0.77,
                local_slots=8,
                calls_under_way=3.9,
            ),
            "admission",
            "10 times as many",
            "raise --concurrency",
        ),
        (
            but(provider_share=0.97, provider_p50_s=None),
            "provider",
            "the provider took 97 % of the running time; loop lag p99 3 ms",
            "the provider sets the pace",
        ),
        (
            but(provider_share=0.97, provider_p50_s=0.002),
            "none",
            "the provider took 97 % of the running time",
            "nothing stands out",
        ),
        (
            but(
                loop_lag_p99_ms=340,
                loop_lag_mean_ms=60,
                loop_lag_of="cell-0 (mcqa)",
                cpu_share=0.4,
            ),
            "event_loop",
            "loop lag p99 340 ms in cell-0 (mcqa); CPU 40 % of a core",
            "move synchronous work",
        ),
        (
            but(loop_lag_p99_ms=340, cpu_share=0.99),
            "cpu",
            "CPU 99 % of a core; loop lag p99 340 ms",
            "--workers",
        ),
        (
            but(
                machine_busy_share=0.99,
                run_machine_share=0.9,
                admission_wait_share=0.8,
                provider_p50_s=8.0,
            ),
            "machine",
            "all cores of the machine 99 % busy; this run used 90 % of all cores; 5 % of the time",
            "more concurrency would only queue",
        ),
        (
            but(
                machine_busy_share=1.0,
                run_machine_share=0.1,
                admission_wait_share=0.8,
                provider_p50_s=8.0,
            ),
            "admission",
            "rollouts waited 80 % of the time for admission; provider p50 8.0 s",
            "raise --concurrency",
        ),
        (
            but(cpu_wait_share=0.4, cpu_share=0.1),
            "none",
            "40 % of the time spent waiting for a core",
            "nothing stands out",
        ),
        (but(loop_lag_p99_ms=340), "none", "loop lag p99 340 ms", "nothing stands out"),
        (
            but(cpu_wait_share=0.4, cpu_share=0.5, loop_lag_p99_ms=340, loop_lag_mean_ms=60),
            "machine",
            "40 % of the time spent waiting for a core; CPU 50 % of a core; loop lag p99 340 ms",
            "use more cores",
        ),
        (
            but(gc_share=0.22, loop_lag_p99_ms=90, cpu_share=0.95),
            "gc",
            "garbage collection 22 % of the time",
            "fewer objects",
        ),
        (
            but(
                connection_wait_share=0.4,
                connection_wait_of="http://10.0.0.7:8000",
                admission_wait_share=0.5,
                provider_p50_s=2.4,
            ),
            "connections",
            "40 % of the time spent waiting for a connection, mostly to http://10.0.0.7:8000; 32 a",
            "raise 'max_connections' of the model server that calls it",
        ),
        (
            but(commit_p99_ms=900, commit_share=0.5),
            "disk",
            "calls waited 50 % of the time to be captured; commit p99 900 ms",
            "put the capture directory on a faster local disk",
        ),
        (
            but(
                commit_p99_ms=230,
                commit_share=0.05,
                provider_share=0.9,
                provider_p50_s=4.0,
                rounds=9,
            ),
            "admission",
            "9.0 times as many rollouts as ran at once",
            "raise --concurrency",
        ),
        (
            but(commit_p99_ms=900, commit_share=0.3, provider_share=0.7, rounds=9),
            "admission",
            "9.0 times as many rollouts as ran at once",
            "raise --concurrency",
        ),
        (but(commit_p99_ms=8, commit_share=0.5), "none", "commit p99 8 ms", "nothing stands out"),
        (
            but(output_wait_share=0.9, output_write_s=1.5, provider_share=0.97, rounds=37),
            "disk",
            "rollouts waited 90 % of the time to be written; each took 1.5 s",
            "put the output (--output) on a faster local disk",
        ),
        (
            but(output_wait_share=0.3, output_write_s=1.5, admission_wait_share=0.6),
            "admission",
            "rollouts waited 60 % of the time for admission",
            "raise --concurrency",
        ),
        (
            but(
                loop_lag_p99_ms=60,
                loop_lag_mean_ms=11,
                loop_share=0.004,
                provider_share=0.99,
                provider_p50_s=20.0,
            ),
            "provider",
            "provider p50 20.0 s; loop lag p99 60 ms",
            "the provider sets the pace",
        ),
        (
            but(
                loop_lag_p99_ms=340,
                loop_lag_mean_ms=60,
                loop_share=0.9,
                provider_share=0.8,
            ),
            "event_loop",
            "loop lag p99 340 ms",
            "move synchronous work",
        ),
        (
            but(
                provider_errors_share=0.5,
                provider_errors_of="rate_limit",
                provider_errors_of_share=0.8,
                admission_wait_share=0.9,
                loop_lag_p99_ms=100,
            ),
            "provider_errors",
            "50 % of the tries at the provider failed, 80 % of them refused for their number (429)",
            "lower --concurrency",
        ),
        (
            but(admission_wait_share=0.7, loop_lag_p99_ms=None, cpu_share=None, gc_share=None),
            "admission",
            "rollouts waited 70 % of the time for admission; provider p50 400 ms",
            "raise --concurrency",
        ),
        (
            but(loop_lag_p99_ms=None, cpu_share=None, gc_share=None),
            "none",
            "provider p50 400 ms",
            "nothing stands out in the counts",
        ),
        (
            but(
                outside_share=0.83,
                outside_s=2.0,
                provider_share=0.17,
                admission_wait_share=0.55,
                provider_p50_s=0.2,
            ),
            "outside_calls",
            "agents, tools and verifiers took 83 % of a rollout's time outside model calls; 2.0 s "
            "of each rollout; provider p50 200 ms",
            "see what agents, tools and verifiers do meanwhile",
        ),
        (
            but(outside_share=0.9, outside_s=0.02, admission_wait_share=0.55),
            "admission",
            "rollouts waited 55 % of the time for admission",
            "raise --concurrency",
        ),
        (Figures(), "none", "", "nothing stands out in the counts"),
    ],
    ids=[
        "healthy",
        "admission",
        "provider",
        "provider-with-room-while-others-wait",
        "provider-whose-latency-grew",
        "provider-whose-latency-hardly-grew",
        "provider-that-refuses-some",
        "errors-that-say-nothing-of-load",
        "local-model-with-all-slots-in-use",
        "local-model-whose-connections-are-waited-for",
        "local-model-with-slots-left",
        "provider-before-its-first-answer",
        "provider-at-once",
        "blocked-loop",
        "full-core",
        "local-model-takes-all",
        "others-take-all-and-the-run-needs-little",
        "waits-for-a-core-with-time-to-spare",
        "one-long-pause",
        "machine-too-small",
        "gc-before-its-effects",
        "connections-before-admission",
        "disk-of-captures",
        "commits-that-are-little-of-a-call",
        "commits-that-take-less-than-the-provider",
        "commits-that-take-no-time",
        "disk-of-the-output",
        "slow-output-while-others-wait-for-admission",
        "lag-that-is-little-of-a-call",
        "lag-within-calls",
        "errors-before-everything",
        "admission-without-telemetry",
        "nothing-without-telemetry",
        "slow-verifier",
        "short-rollouts-that-are-mostly-handed-on",
        "nothing-known",
    ],
)
def test_figures_name_their_bottleneck(
    figures: Figures, bottleneck: str, evidence: str, advice: str
) -> None:
    found = diagnose(figures)

    assert found.bottleneck == bottleneck
    assert evidence in "; ".join(found.evidence)
    assert advice in found.advice


def test_a_share_of_nothing_is_no_evidence_where_nothing_stands_out() -> None:
    quiet = Figures(admission_wait_share=0.004, connection_wait_share=0.0, active=12)

    assert str(diagnose(quiet)) == "12 active: nothing stands out in the counts"


def test_a_diagnosis_reads_as_evidence_then_advice() -> None:
    said = str(diagnose(but(admission_wait_share=0.61, provider_p50_s=4.1)))

    assert said == (
        "rollouts waited 61 % of the time for admission; provider p50 4.1 s; loop lag p99 3 ms; "
        "32 active: raise --concurrency, if the provider can take more"
    )


@given(
    st.builds(
        Figures,
        **{
            name: st.none()
            | (st.just("cell-0") if name.endswith("_of") else st.floats(min_value=0, max_value=1e6))
            for name in Figures.__dataclass_fields__
        },
    )
)
def test_any_figures_get_an_answer_and_unknown_ones_are_no_evidence(figures: Figures) -> None:
    found = diagnose(figures)

    known = sum(getattr(figures, name) is not None for name in Figures.__dataclass_fields__)
    assert found.advice
    assert len(found.evidence) <= known
    assert "None" not in str(found)
