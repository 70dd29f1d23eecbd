import math
from email.utils import formatdate

import pytest

from nemo_gym.transport.retry import RetryRule, retry_after_s

NOW = 1_786_032_154.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([], None),
        ([(b"retry-after", b"3")], 3.0),
        ([(b"retry-after", b" 0.5 ")], 0.5),
        ([(b"retry-after", b"0")], 0.0),
        ([(b"retry-after", formatdate(NOW + 20, usegmt=True).encode())], 20.0),
        ([(b"retry-after", formatdate(NOW - 20, usegmt=True).encode())], 0.0),
        ([(b"retry-after", b"soon")], None),
        ([(b"retry-after", b"-1")], None),
        ([(b"retry-after", b"nan")], None),
        ([(b"retry-after", b"inf")], None),
        ([(b"retry-after", b"")], None),
        ([(b"retry-after", b"7"), (b"retry-after-ms", b"1500")], 1.5),
        ([(b"retry-after", b"7"), (b"retry-after-ms", b"x")], 7.0),
        ([(b"x-should-retry", b"false"), (b"retry-after", b"1")], math.inf),
        ([(b"x-should-retry", b"true"), (b"retry-after", b"1")], 1.0),
    ],
)
def test_the_wait_that_a_provider_asks_for(
    headers: list[tuple[bytes, bytes]], seconds: float | None
) -> None:
    assert retry_after_s(headers, NOW) == seconds


@pytest.mark.parametrize("status", [429, 502, 503, 504, 529])
def test_these_statuses_are_worth_another_try(status: int) -> None:
    assert RetryRule().retries(status)


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 408, 409, 413, 500, 501])
def test_these_are_not(status: int) -> None:
    assert not RetryRule().retries(status)


@pytest.mark.parametrize("asked_s", [None, 0.0, 0.1, 1.0, 3.0, 9.0])
def test_the_defaults_outlast_ten_seconds_of_refusals_however_the_dice_fall(
    asked_s: float | None,
) -> None:
    rule, elapsed, tries = RetryRule(), 0.0, 1
    while wait := rule.wait_s(tries=tries, elapsed_s=elapsed, jitter=0.0, asked_s=asked_s):
        assert wait >= (asked_s or 0)
        elapsed += wait
        tries += 1

    assert elapsed > 10


def test_a_wait_longer_than_the_whole_time_means_no_other_try() -> None:
    rule = RetryRule(total_s=60)

    assert rule.wait_s(tries=1, elapsed_s=0, jitter=0, asked_s=3600) is None
