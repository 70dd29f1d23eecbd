"""The server's end of a trace: whose child a request is, and what its span says."""

import asyncio
from typing import Any

import pytest

from nemo_gym.servers.counts import count_cancellation
from nemo_gym.telemetry.trace_middleware import TraceMiddleware
from nemo_gym.telemetry.tracing import inject, span
from support.spans import by_name, tracing_on

PARENT = (b"traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")


class Route:
    path = "/v1/{rest}"


def request(method: str = "POST", path: bytes = b"/v1/x", *headers: tuple[bytes, bytes]) -> Any:
    return {"type": "http", "method": method, "raw_path": path, "headers": list(headers)}


class App:
    """Answers with a status, or raises; keeps what it saw."""

    def __init__(self, status: int = 200, error: BaseException | None = None) -> None:
        self.status, self.error = status, error
        self.headers: list[tuple[bytes, bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        inject(self.headers)
        scope["route"] = Route
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        if self.error is not None:
            raise self.error
        await send({"type": "http.response.body", "body": b"ok"})


async def call(app: Any, scope: Any) -> list[Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    await TraceMiddleware(app, "policy_model")(scope, receive, send)
    return sent


async def test_while_off_the_app_gets_the_very_same_callables() -> None:
    seen: list[object] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend((scope, receive, send))

    given: tuple[Any, Any, Any] = (request(), lambda: None, lambda _: None)
    await TraceMiddleware(app, "m")(*given)

    assert all(a is b for a, b in zip(seen, given, strict=True))


async def test_a_request_is_a_child_of_its_caller_and_parent_of_what_it_calls() -> None:
    app = App()

    with tracing_on() as on:
        await call(app, request("POST", b"/ng-rollout/3-0-a1/v1/responses", PARENT))

    ended = by_name(on)["POST /v1/{rest}"]
    assert ended.kind == "server"
    assert ended.parent is not None
    assert ended.parent.span_id == 0x00F067AA0BA902B7
    assert app.headers[0][1].split(b"-")[2] == b"%016x" % ended.context.span_id
    assert dict(ended.attributes) == {
        "nemo.gym.server": "policy_model",
        "http.request.method": "POST",
        "http.route": "/v1/{rest}",
        "http.response.status_code": 200,
        "nemo.gym.rollout.id": "3-0-a1",
    }


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (b"/run", "POST /run"),
        (b"/ng-rollout/3-0/v1/responses", "POST /v1/responses"),
        (b"/ng-rollout/3-0/v1/secret-42", "POST unmatched"),
        (b"/", "POST unmatched"),
    ],
)
async def test_without_a_route_only_paths_of_our_own_are_named(path: bytes, name: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    with tracing_on() as on:
        await call(app, request("POST", path))

    assert [ended.name for ended in on.ended] == [name]


async def test_a_post_without_a_caller_begins_a_trace_and_a_probe_does_not() -> None:
    with tracing_on() as on:
        await call(App(), request("GET", b"/health"))
        none = list(on.ended)
        await call(App(), request("POST", b"/run"))

    assert none == []
    assert [ended.parent for ended in on.ended] == [None]


async def test_what_is_sent_passes_through_untouched() -> None:
    with tracing_on():
        traced = await call(App(), request())

    assert traced == await call(App(), request())


async def test_a_server_error_is_the_error_of_its_span() -> None:
    with tracing_on() as on:
        await call(App(503), request())

    assert by_name(on)["POST /v1/{rest}"].error == "503"


async def test_a_client_error_is_not() -> None:
    with tracing_on() as on:
        await call(App(404), request())

    assert by_name(on)["POST /v1/{rest}"].error is None


async def test_an_exception_passes_through_and_names_the_error() -> None:
    with tracing_on() as on, pytest.raises(KeyError):
        await call(App(error=KeyError("x")), request())

    assert by_name(on)["POST /v1/{rest}"].error == "KeyError"


async def test_a_rollout_id_outside_the_grammar_is_no_attribute() -> None:
    with tracing_on() as on:
        await call(App(400), request("POST", b"/ng-rollout/../v1/responses"))

    assert "nemo.gym.rollout.id" not in by_name(on)["POST /v1/{rest}"].attributes


async def test_a_lifespan_is_no_request() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    with tracing_on() as on, span("outer", root=True):
        await TraceMiddleware(app, "m")({"type": "lifespan"}, lambda: None, lambda _: None)  # type: ignore[arg-type,return-value]
        during = list(on.ended)

    assert (seen, during) == (["lifespan"], [])


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit])
async def test_a_request_that_was_ended_from_outside_is_cancelled(
    error: type[BaseException],
) -> None:
    with tracing_on() as on, pytest.raises(error):
        await call(App(error=error()), request())

    ended = by_name(on)["POST /v1/{rest}"]
    assert (ended.error, ended.attributes["error.type"]) == ("cancelled", "cancelled")


async def test_a_request_whose_client_went_away_is_cancelled() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        count_cancellation(scope, response_started=False)

    with tracing_on() as on:
        await call(app, request("POST", b"/run"))

    assert by_name(on)["POST /run"].error == "cancelled"
