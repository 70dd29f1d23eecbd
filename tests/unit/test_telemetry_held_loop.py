"""A held loop is named: as the bottleneck where it is one, and beside every other advice."""

import pytest

from nemo_gym.telemetry.diagnosis import Figures, diagnose

HELD = Figures(
    active=8,
    provider_p50_s=0.3,
    provider_share=0.3,
    loop_lag_p99_ms=619,
    loop_lag_mean_ms=120,
    loop_lag_of="cell-0 (mcqa)",
)


def held(**changes: float | str | None) -> Figures:
    values = {name: getattr(HELD, name) for name in Figures.__dataclass_fields__}
    return Figures(**{**values, **changes})


def test_a_loop_without_room_is_the_bottleneck_whatever_waits_beside_it() -> None:
    found = diagnose(held(loop_held_share=0.8, loop_share=0.1, provider_share=0.9, rounds=15))

    assert found.bottleneck == "event_loop"
    assert found.evidence[0] == "loop lag p99 619 ms in cell-0 (mcqa), held 80 % of the time"


@pytest.mark.parametrize(
    ("waits", "bottleneck"),
    [
        ({"provider_share": 0.9, "rounds": 15.0}, "admission"),
        ({"admission_wait_share": 0.6}, "admission"),
        ({"outside_share": 0.7, "outside_s": 1.0}, "outside_calls"),
        ({"provider_share": 0.9}, "provider"),
    ],
)
def test_no_advice_shows_the_lag_of_a_loop_without_naming_what_holds_it(
    waits: dict[str, float], bottleneck: str
) -> None:
    found = diagnose(held(loop_held_share=0.3, loop_share=0.1, **waits))

    assert found.bottleneck == bottleneck
    assert "loop lag p99 619 ms in cell-0 (mcqa), held 30 % of the time" in found.evidence
    assert found.advice.endswith(
        "; besides, something blocks the event loop of cell-0 (mcqa), which more concurrency "
        "waits for"
    )


def test_a_single_pause_is_told_as_what_it_is() -> None:
    found = diagnose(
        held(loop_held_share=0.01, loop_lag_mean_ms=1.0, provider_share=0.9, rounds=15)
    )

    assert "loop lag p99 619 ms in cell-0 (mcqa), held 1 % of the time" in found.evidence
    assert "blocks" not in found.advice


@pytest.mark.parametrize(("busy", "told"), [(0.97, True), (0.5, False)])
def test_a_late_loop_that_nothing_holds_is_no_blocked_one(busy: float, told: bool) -> None:
    found = diagnose(
        held(
            loop_held_share=0.01, loop_share=0.9, provider_share=0.9, rounds=15,
            machine_busy_share=busy, run_machine_share=0.1,
        )
    )  # fmt: skip

    assert found.bottleneck == "admission"
    assert found.advice.endswith("; besides, all cores of the machine are 97 % busy") is told


def test_a_figure_that_speaks_against_the_advice_is_no_evidence_for_it() -> None:
    found = diagnose(
        Figures(provider_share=0.9, provider_again_share=0.04, provider_growth=1.0, active=8)
    )

    assert found.bottleneck == "provider"
    assert str(found).startswith(
        "the provider took 90 % of the running time; 4 % of the tries had to be repeated; 8 active"
    )
