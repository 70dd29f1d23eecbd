"""Model routes are found past FastAPI, and nobody who added something to the app sees that."""

from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.servers.raw import RawRoute, raw_route, send_json
from nemo_gym.servers.stack import GymApp, new_app


class Refused(Exception):
    """An error that one app has a handler for."""


async def _told(scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer with what is known of the route."""
    seen = {"method": scope["method"], "route": scope["route"].path, "through": "router" in scope}
    if root_path := scope.get("root_path"):
        seen["root_path"] = root_path
    await send_json(send, 200, seen)


async def _fails(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise Refused("no")


def _app() -> GymApp:
    def answer(path: str, error: BaseException) -> tuple[int, object]:
        return 500, {"path": path, "error": str(error)}

    app = new_app("model", lambda inner: inner, answer)
    for route in (
        RawRoute("/v1/told", _told, ("GET", "POST")),
        RawRoute("/v1/told", _fails),
        RawRoute("/v1/fails", _fails),
        RawRoute("/v1/{rest:path}", _told, ("GET", "POST")),
    ):
        raw_route(app, route.path, route.app, route.methods, direct=True)
    return app


def _asked(app: FastAPI, method: str, path: str) -> Any:
    return TestClient(app, raise_server_exceptions=False).request(method, path)


def test_a_plain_path_takes_the_short_way_to_the_first_of_its_routes() -> None:
    assert _asked(_app(), "POST", "/v1/told").json() == {
        "method": "POST",
        "route": "/v1/told",
        "through": False,
    }


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/other", 200),
        ("DELETE", "/v1/told", 405),
        ("HEAD", "/v1/told", 200),
        ("GET", "/health", 200),
        ("GET", "/nowhere", 404),
        ("OPTIONS", "/v1/fails", 405),
    ],
)
def test_everything_else_goes_through_the_whole_app(method: str, path: str, status: int) -> None:
    assert _asked(_app(), method, path).status_code == status


def test_an_error_on_the_short_way_is_answered_like_every_other() -> None:
    answer = _asked(_app(), "POST", "/v1/fails")

    assert (answer.status_code, answer.json()) == (500, {"path": "/v1/fails", "error": "no"})


def test_a_handler_that_somebody_added_is_asked() -> None:
    app = _app()

    @app.exception_handler(Refused)
    async def handle(_request: Request, error: Refused) -> JSONResponse:
        return JSONResponse({"handled": str(error)}, 418)

    answer = _asked(app, "POST", "/v1/fails")

    assert (answer.status_code, answer.json()) == (418, {"handled": "no"})


def test_a_handler_in_the_place_of_the_apps_own_is_asked() -> None:
    app = _app()

    @app.exception_handler(Exception)
    async def handle(_request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"mine": str(error)}, 500)

    assert _asked(app, "POST", "/v1/fails").json() == {"mine": "no"}


def test_a_route_that_came_after_the_first_request_is_seen() -> None:
    app = _app()
    before = _asked(app, "POST", "/v1/told").json()

    @app.post("/v1/told")
    async def own() -> str:
        return "own"

    app.router.routes.insert(0, app.router.routes.pop())

    assert before["through"] is False
    assert _asked(app, "POST", "/v1/told").json() == "own"


def test_middleware_that_somebody_added_sees_every_model_call() -> None:
    app, seen = _app(), list[str]()

    class Seeing:
        def __init__(self, inner: ASGIApp) -> None:
            self.inner = inner

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            seen.append(scope["path"])
            await self.inner(scope, receive, send)

    app.add_middleware(Seeing)
    answer = _asked(app, "POST", "/v1/told")

    assert answer.json()["through"] is True
    assert seen == ["/v1/told"]


def test_a_route_that_somebody_put_before_the_model_routes_comes_first() -> None:
    app = _app()

    @app.post("/v1/told")
    async def own() -> str:
        return "own"

    app.router.routes.insert(0, app.router.routes.pop())

    assert _asked(app, "POST", "/v1/told").json() == "own"
    assert _asked(app, "GET", "/v1/told").json()["through"] is False


def test_behind_a_route_for_many_paths_nothing_is_found_directly() -> None:
    app = _app()
    raw_route(app, "/v1/late", _told, direct=True)

    assert _asked(app, "POST", "/v1/late").json()["through"] is True


def test_under_a_path_of_a_proxy_a_request_goes_through_the_whole_app() -> None:
    app = _app()
    app.root_path = "/proxy"

    assert _asked(app, "POST", "/v1/told").json() == {
        "method": "POST",
        "route": "/v1/told",
        "through": True,
        "root_path": "/proxy",
    }


def test_the_short_way_knows_its_app() -> None:
    app, apps = _app(), list[object]()

    async def noting(scope: Scope, _receive: Receive, send: Send) -> None:
        apps.append(scope["app"])
        await send_json(send, 200, {})

    raw_route(app, "/v1/noting", noting, direct=True)
    app.router.routes.insert(0, app.router.routes.pop())
    _asked(app, "POST", "/v1/noting")

    assert apps == [app]
