"""Every setting and every instrument of telemetry stands in the documentation."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from nemo_gym.telemetry.observer import _Instruments
from nemo_gym.telemetry.recorded import Recorded
from nemo_gym.telemetry.recorded_instruments import register
from nemo_gym.telemetry.settings import TelemetryOptions
from support.meters import NotingMeter

DOCS = Path(__file__).parents[2] / "docs"


def keys_of(section: type[BaseModel], prefix: str = "telemetry") -> Iterator[str]:
    for name, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys_of(kind, f"{prefix}.{name}")
        else:
            yield f"{prefix}.{name}"


@pytest.mark.parametrize("key", list(keys_of(TelemetryOptions)))
def test_a_setting_stands_among_the_settings(key: str) -> None:
    assert f"`{key}`" in DOCS.joinpath("configuration.md").read_text()


def test_the_interval_of_the_samples_is_documented_with_its_default() -> None:
    text = DOCS.joinpath("telemetry.md").read_text()
    default = TelemetryOptions().metrics.sample_interval_s

    [row] = [line for line in text.splitlines() if "`telemetry.metrics.sample_interval_s`" in line]
    assert f"({default:g} s)" in row


def test_every_instrument_stands_in_the_table_with_its_attributes() -> None:
    table = DOCS.joinpath("telemetry.md").read_text().partition("## What is measured")[2]
    meter, recorded = NotingMeter(), Recorded()
    _Instruments(meter)
    register(meter, recorded)
    held = {h.described.name: h.described.keys for h in recorded.histograms()}
    held |= {c.described.name: c.described.keys for c in recorded.counters()}
    written = set(re.findall(r"`([^`]+)`", table))
    written |= {shortened for shortened in written if shortened.startswith(".")}

    for name in [*held, *(name for name, _, _ in meter.made)]:
        assert written & {name, *endings_of(name)}, name
    for name, keys in held.items():
        for key in keys:
            assert key in table or key.removeprefix("gen_ai.") in table, f"{name}: {key}"


def endings_of(name: str) -> set[str]:
    """Return the forms in which a row with a common start names the others: `.turns`."""
    parts = name.split(".")
    return {"." + ".".join(parts[at:]) for at in range(1, len(parts))}
