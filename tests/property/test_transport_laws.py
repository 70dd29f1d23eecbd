"""Laws of the pure parts of transport: retries, request heads, choosing an instance."""

import math

import httptools
from hypothesis import example, given
from hypothesis import strategies as st

from nemo_gym.transport.address import parse_address
from nemo_gym.transport.base import Call
from nemo_gym.transport.directory import rendezvous
from nemo_gym.transport.head import CallInvalid, request_head
from nemo_gym.transport.retry import RetryRule, retry_after_s

jitters = st.floats(0, 1)
seconds = st.floats(0, 1e6)
rules = st.builds(
    RetryRule,
    tries=st.integers(1, 20),
    total_s=seconds,
    first_wait_s=st.floats(0.001, 100),
    longest_wait_s=st.floats(0.001, 1000),
)


@given(rules, st.lists(jitters, min_size=25, max_size=25), st.none() | seconds)
def test_tries_and_time_are_bounded(
    rule: RetryRule, chances: list[float], asked: float | None
) -> None:
    tries, elapsed = 1, 0.0
    for chance in chances:
        wait = rule.wait_s(tries=tries, elapsed_s=elapsed, jitter=chance, asked_s=asked)
        if wait is None:
            break
        tries, elapsed = tries + 1, elapsed + wait

    assert tries <= rule.tries
    assert elapsed <= rule.total_s


@given(rules, jitters, seconds, st.integers(1, 20))
@example(RetryRule(tries=2, total_s=2.0, first_wait_s=2.0, longest_wait_s=2.0), 1.0, 0.0, 1)
def test_a_wait_is_never_shorter_than_was_asked_for_nor_than_the_backoff(
    rule: RetryRule, chance: float, asked: float, tries: int
) -> None:
    wait = rule.wait_s(tries=tries, elapsed_s=0, jitter=chance, asked_s=asked)
    backoff = rule.wait_s(tries=tries, elapsed_s=-1e9, jitter=chance)

    assert wait is None or backoff is not None
    assert wait is None or max(asked, backoff or 0) <= wait <= max(asked + 1, backoff or 0)


@given(rules, jitters, st.integers(1, 20))
def test_a_wait_of_our_own_grows_and_stays_within_its_limit(
    rule: RetryRule, chance: float, tries: int
) -> None:
    wait = rule.wait_s(tries=tries, elapsed_s=-1e9, jitter=chance)
    full = min(rule.longest_wait_s, rule.first_wait_s * 2 ** (tries - 1))

    assert wait is None or full / 2 <= wait <= full


@given(st.lists(st.tuples(st.sampled_from([b"retry-after", b"retry-after-ms"]), st.binary())))
def test_no_header_breaks_the_reading_of_a_wait(headers: list[tuple[bytes, bytes]]) -> None:
    wait = retry_after_s(headers, 1e9)

    assert wait is None or (wait >= 0 and not math.isnan(wait))


class _Seen:
    """What a server's parser makes of a request head."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = 0

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_message_complete(self) -> None:
        self.complete += 1


# Any bytes at all in a value: what can be sent arrives as it is, what could forge is refused.
values = st.binary(max_size=20) | st.sampled_from([b"a\r\nx: y", b"\n", b"a\rb", b"\0", b"a\tb"])


@given(st.lists(st.tuples(st.just(b"x-name"), values), max_size=4), st.binary(max_size=50))
def test_a_head_is_read_back_as_it_was_meant_or_never_made(
    headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    forging = any(c in value for _, value in headers for c in (b"\r", b"\n", b"\0"))
    try:
        head = request_head(Call("POST", "/a?b", headers, body), host=b"h", target="/a?b")
    except CallInvalid:
        assert forging
        return
    assert not forging
    seen = _Seen()
    try:
        httptools.HttpRequestParser(seen).feed_data(head + body)
    except httptools.HttpParserError:
        return  # other control characters: the server says no, and nothing was smuggled

    assert seen.complete == 1
    assert seen.url == b"/a?b"
    arrived = [value.strip(b" \t") for name, value in seen.headers if name == b"x-name"]
    assert arrived == [value.strip(b" \t") for _, value in headers]


hosts = st.from_regex(r"[a-z][a-z0-9-]{0,8}(\.[a-z]{2,5})?", fullmatch=True)
bases = st.sampled_from(["", "/", "/v1", "/v1/", "/api/v1", "/api/"])


@given(hosts, st.none() | st.integers(1, 65535), bases)
def test_with_or_without_v1_the_same_route_is_reached(
    host: str, port: int | None, base: str
) -> None:
    url = f"http://{host}" + (f":{port}" if port else "") + base
    target = parse_address(url).target("/v1/responses")

    assert target.count("/v1") == 1
    assert target.endswith("/v1/responses")
    assert parse_address(parse_address(url).origin).origin == parse_address(url).origin


keys = st.text(max_size=20)
places = st.lists(st.text(min_size=1, max_size=10), min_size=1, max_size=8, unique=True)


@given(keys, places)
def test_everybody_chooses_the_same_instance_in_whatever_order_they_know_them(
    key: str, known: list[str]
) -> None:
    shuffled = sorted(known, key=hash)

    assert rendezvous(key, known) == rendezvous(key, shuffled)


@given(keys, places)
def test_taking_another_instance_away_moves_nobody(key: str, known: list[str]) -> None:
    chosen = rendezvous(key, known)
    for other in known:
        if other != chosen:
            assert rendezvous(key, [place for place in known if place != other]) == chosen
