"""The route that an app finds is seen outside of the layers that hand on a copy of the scope."""

from types import SimpleNamespace

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.capture.memory import MemoryStore
from nemo_gym.capture.middleware import model_call_stack
from nemo_gym.ids import parse_rollout_id
from nemo_gym.servers.context import RolloutContext
from nemo_gym.telemetry.routes import route_of


async def finds_its_route(scope: Scope, _receive: Receive, send: Send) -> None:
    scope["route"] = SimpleNamespace(path="/v1/{found}")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


def captured(app: ASGIApp) -> ASGIApp:
    return model_call_stack(app, store=MemoryStore(), model_ref_name="m")


def captured_without_prefix(app: ASGIApp) -> ASGIApp:
    named = parse_rollout_id("0-0")
    store = MemoryStore()
    return model_call_stack(app, store=store, model_ref_name="m", unprefixed=lambda _: named)


def uncaptured(app: ASGIApp) -> ASGIApp:
    return model_call_stack(app, store=None, model_ref_name="m")


def stripped(app: ASGIApp) -> ASGIApp:
    return RolloutContext(app, strip=True)


@pytest.mark.parametrize("layer", [captured, captured_without_prefix, uncaptured, stripped])
@pytest.mark.parametrize("prefix", ["", "/ng-rollout/0-0"])
async def test_the_route_is_found_from_outside(layer: object, prefix: str) -> None:
    assert callable(layer)
    path = f"{prefix}/v1/responses"
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(_message: Message) -> None:
        """Take what is answered."""

    await layer(finds_its_route)(scope, receive, send)

    assert route_of(scope) == "/v1/{found}"
