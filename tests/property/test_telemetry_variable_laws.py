"""Laws of the standard variables: any text at all may be their value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.telemetry.unread import of_exporter, of_sdk
from nemo_gym.telemetry.variables import Unread, unread, without

OTLP = "OTEL_EXPORTER_OTLP_"


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=40))
def test_no_value_makes_reading_fail_and_what_is_kept_can_be_read(value: str) -> None:
    for protocol in ("http", "grpc"):
        with pytest.MonkeyPatch.context() as patch:
            for name in _names():
                patch.setenv(name, value)
            found = [*of_sdk(), *of_exporter("metrics", protocol), *of_exporter("traces", protocol)]
            with without(found):
                left = [again for name in _names() if _is_told(again := unread(name, protocol))]

        assert left == []


def _names() -> list[str]:
    suffixes = ("COMPRESSION", "TIMEOUT", "HEADERS", "CERTIFICATE", "CLIENT_KEY")
    signals = ("", "METRICS_", "TRACES_")
    return [
        *(f"{OTLP}{signal}{suffix}" for signal in signals for suffix in suffixes),
        *("OTEL_RESOURCE_ATTRIBUTES", "OTEL_SPAN_LINK_COUNT_LIMIT"),
    ]


def _is_told(found: Unread | None) -> bool:
    return found is not None and bool(found.line)
