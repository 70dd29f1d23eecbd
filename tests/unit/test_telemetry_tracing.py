"""Spans as values: parents, errors, sampling, headers, and nothing at all while off."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from nemo_gym.ids import parse_rollout_id, with_current_rollout_id
from nemo_gym.telemetry.model_calls import model_call_started
from nemo_gym.telemetry.sdk import OtelBridge
from nemo_gym.telemetry.tracing import NoSpan, Unsampled, begin_span, extract, inject, span, tracer
from nemo_gym.telemetry.work import tool_call_ended, tool_span
from support.spans import by_name, tracing_on

Headers = list[tuple[bytes, bytes]]
PARENT = (b"traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")


def test_while_off_a_span_is_nothing_and_no_header_is_added() -> None:
    headers: Headers = []

    with span("rollout", root=True) as nothing:
        inject(headers)

    assert isinstance(nothing, NoSpan)
    assert (headers, tracer(), begin_span("x"), extract([PARENT])) == ([], None, None, None)


def test_a_span_inside_another_is_its_child_in_the_same_trace() -> None:
    with tracing_on() as on, span("rollout", root=True), span("turn"):
        pass

    rollout, turn = by_name(on)["rollout"], by_name(on)["turn"]
    assert rollout.parent is None
    assert turn.parent == rollout.context
    assert turn.context.trace_id == rollout.context.trace_id
    assert rollout.started_ns <= turn.started_ns <= turn.ended_ns <= rollout.ended_ns


def test_a_root_span_begins_a_trace_of_its_own() -> None:
    with tracing_on() as on, span("outer", root=True), span("inner", root=True):
        pass

    spans = by_name(on)
    assert spans["inner"].parent is None
    assert spans["inner"].context.trace_id != spans["outer"].context.trace_id


def test_the_header_of_a_call_names_the_running_span_and_is_taken_up_by_the_callee() -> None:
    headers: Headers = [(b"accept", b"*/*")]

    with tracing_on(), span("rollout", root=True) as rollout:
        inject(headers)
        taken = extract(headers)

    assert not isinstance(rollout, NoSpan)
    assert taken == rollout.context


def test_a_header_that_is_there_already_is_left_alone() -> None:
    headers: Headers = [PARENT]

    with tracing_on(), span("rollout", root=True):
        inject(headers)

    assert headers == [PARENT]


@pytest.mark.parametrize(
    "theirs",
    [
        [(b"traceparent", b"garbage"), (b"tracestate", b"congo=1")],
        [(b"tracestate", b"congo=1")],
        [PARENT, PARENT],
    ],
    ids=["garbage", "state-alone", "two-parents"],
)
def test_a_header_that_is_no_valid_one_makes_room_for_ours(theirs: Headers) -> None:
    headers = [*theirs, (b"accept", b"*/*")]

    with tracing_on(), span("rollout", root=True) as rollout:
        begun_anew = extract(theirs)
        inject(headers)
        taken = extract(headers)

    assert begun_anew is None
    assert not isinstance(rollout, NoSpan)
    assert taken == rollout.context
    assert [name for name, _ in headers] == [b"accept", b"traceparent"]


def test_the_states_of_several_headers_travel_along_in_order() -> None:
    states = [(b"tracestate", b"foo=1"), (b"tracestate", b"bar=2")]
    headers: Headers = []

    with tracing_on() as on:
        parent = extract([states[0], PARENT, states[1]])
        with on.begin("POST /run", "server", parent):
            inject(headers)

    assert headers[1:] == [(b"tracestate", b"foo=1,bar=2")]


def test_the_state_of_another_vendor_travels_along() -> None:
    state = (b"tracestate", b"congo=t61rcWkgMzE")
    headers: Headers = []

    with tracing_on() as on:
        parent = extract([PARENT, state])
        assert parent is not None
        with on.begin("POST /run", "server", parent):
            inject(headers)

    assert state in headers


def test_an_exception_is_the_error_of_its_span_and_passes_through() -> None:
    with tracing_on() as on, pytest.raises(KeyError), span("verify", root=True):
        raise KeyError("x")

    assert by_name(on)["verify"].error == "KeyError"
    assert by_name(on)["verify"].attributes["error.type"] == "KeyError"


async def test_tasks_side_by_side_have_their_own_running_span() -> None:
    async def rollout(name: str) -> None:
        with span(name, root=True):
            await asyncio.sleep(0)
            with span(f"turn of {name}"):
                await asyncio.sleep(0)

    with tracing_on() as on:
        await asyncio.gather(*(rollout(f"r{number}") for number in range(20)))

    spans = by_name(on)
    for number in range(20):
        assert spans[f"turn of r{number}"].parent == spans[f"r{number}"].context


async def test_a_generator_closed_from_another_task_ends_its_span_and_logs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stream() -> AsyncIterator[int]:
        with span("stream"):
            yield 1
            yield 2

    with tracing_on(bridge=OtelBridge()) as on, span("rollout", root=True):
        values = stream()
        await asyncio.create_task(anext(values))  # type: ignore[arg-type]
        await asyncio.create_task(values.aclose())  # type: ignore[attr-defined]

    assert "stream" in by_name(on)
    assert caplog.records == []


@pytest.mark.parametrize(("ratio", "expected"), [(0.0, 0), (1.0, 2000)])
def test_sampling_is_decided_at_the_root_for_the_whole_trace(ratio: float, expected: int) -> None:
    with tracing_on(ratio) as on:
        for _ in range(1000):
            with span("rollout", root=True), span("turn"):
                pass

    assert len(on.ended) == expected


def test_a_share_of_traces_is_sampled_whole() -> None:
    with tracing_on(0.3) as on:
        for _ in range(1000):
            with span("rollout", root=True), span("turn"):
                pass

    traces = [ended.context.trace_id for ended in on.ended]
    assert all(traces.count(trace) == 2 for trace in set(traces))
    assert 200 < len(set(traces)) < 400


def test_an_unsampled_trace_tells_the_callee_so() -> None:
    headers: Headers = []

    with tracing_on(0.0), span("rollout", root=True):
        inject(headers)

    assert headers[0][1].endswith(b"-00")


def test_inside_an_unsampled_trace_nothing_is_begun_and_the_callee_still_told() -> None:
    headers: Headers = []

    with tracing_on(0.0), span("rollout", root=True) as rollout, span("turn") as turn:
        call = begin_span("chat m")
        inject(headers)

    assert isinstance(rollout, Unsampled)
    assert (type(turn), call) == (NoSpan, None)
    assert extract(headers) is None  # off again
    assert headers[0][1].endswith(b"-00")


def test_a_caller_that_does_not_sample_is_obeyed() -> None:
    headers: Headers = []

    with tracing_on(1.0) as on:
        parent = extract([(PARENT[0], PARENT[1].replace(b"-01", b"-00"))])
        with on.begin("POST /run", "server", parent), span("turn"):
            inject(headers)

    assert list(on.ended) == []
    assert headers == [(b"traceparent", PARENT[1].replace(b"-01", b"-00"))]


def test_the_queue_is_bounded_and_counts_what_it_drops() -> None:
    with tracing_on() as on:
        for _ in range(10_000):
            with span("rollout", root=True):
                pass

    assert len(on.ended) + on.dropped == 10_000
    assert len(on.ended) == 8192
    assert len(on.drain(100)) == 100


def test_a_call_to_a_provider_is_a_client_span_of_the_running_one() -> None:
    with tracing_on() as on, span("rollout", root=True):
        call = model_call_started("openai", "gpt-5", stream=True)
        call.first_chunk()
        call.ended("rate_limit")
        call.ended()

    [ended] = [one for one in on.ended if one.kind == "client"]
    assert ended.name == "chat gpt-5"
    assert ended.parent == by_name(on)["rollout"].context
    assert ended.error == "rate_limit"
    assert ended.attributes["gen_ai.provider.name"] == "openai"
    assert "gen_ai.response.time_to_first_chunk" in ended.attributes


def test_what_a_call_used_is_on_its_span() -> None:
    with tracing_on() as on, span("rollout", root=True):
        call = model_call_started("openai", "gpt-5", stream=False)
        call.tokens((100, None, 80, None, None))
        call.ended()

    attributes = by_name(on)["chat gpt-5"].attributes
    assert attributes["gen_ai.usage.input_tokens"] == 100
    assert "gen_ai.usage.output_tokens" not in attributes


def test_a_tool_call_is_a_span_that_began_when_the_call_did() -> None:
    with tracing_on() as on, span("POST /run", root=True):
        tool_call_ended("send_mail", 0.25, "timeout")

    ended = by_name(on)["execute_tool send_mail"]
    assert (ended.ended_ns - ended.started_ns) / 1e9 == pytest.approx(0.25, abs=0.05)
    assert ended.parent == by_name(on)["POST /run"].context
    assert (ended.error, ended.attributes["gen_ai.tool.name"]) == ("timeout", "send_mail")


def test_what_a_tool_asks_of_servers_lies_in_its_span() -> None:
    with tracing_on() as on, span("POST /run", root=True):
        with tool_span("send_mail") as made:
            with span("POST /send_mail", kind="server"):
                pass
            made.end("http_500")
        tool_call_ended("send_mail", 0.25, "http_500", has_span=True)

    names = [ended.name for ended in on.ended]
    tool = by_name(on)["execute_tool send_mail"]
    assert names == ["POST /send_mail", "execute_tool send_mail", "POST /run"]
    assert by_name(on)["POST /send_mail"].parent == tool.context
    assert (tool.error, tool.attributes["gen_ai.tool.name"]) == ("http_500", "send_mail")


def test_a_call_outside_any_trace_makes_no_span() -> None:
    with tracing_on() as on:
        model_call_started("openai", "gpt-5", stream=False).ended()

    assert list(on.ended) == []


def test_spans_of_a_users_library_nest_with_ours() -> None:
    from opentelemetry import trace  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415

    users = TracerProvider(shutdown_on_exit=False).get_tracer("library")
    with tracing_on(bridge=OtelBridge()) as on, span("tool", root=True) as ours:
        with users.start_as_current_span("sql") as theirs, span("inner"):
            pass
        after = trace.get_current_span().get_span_context().span_id

    assert not isinstance(ours, NoSpan)
    inner = by_name(on)["inner"].parent
    assert theirs.parent is not None  # type: ignore[attr-defined]
    assert theirs.parent.span_id == ours.context.span_id == after  # type: ignore[attr-defined]
    assert inner is not None
    assert inner.span_id == theirs.get_span_context().span_id
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize("rollout_id", ["3-0-a1", None])
def test_a_call_to_a_provider_names_the_rollout_it_is_made_for(rollout_id: str | None) -> None:
    current = None if rollout_id is None else parse_rollout_id(rollout_id)
    with tracing_on() as owner, with_current_rollout_id(current), span("rollout", root=True):
        model_call_started("openai", "m").ended()

    told = by_name(owner)["chat m"].attributes
    names = ("nemo.gym.rollout.id", "gen_ai.conversation.id")
    assert [told.get(name) for name in names] == [rollout_id] * 2
