"""The base of a model server: the three model routes, streaming included, and capture around them.

A component implements `responses` and `chat_completions` (and `messages` where it can). Asked for a
stream, it answers with events made from its complete response. Built-in servers, which stream for
real, give raw routes instead: `ModelServer.model_routes`.
"""

import re
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive

from nemo_gym.capture.middleware import model_call_stack
from nemo_gym.capture.stopping import stopped_calls
from nemo_gym.records.refs import ServerKind
from nemo_gym.servers.answers import redactor_of, secrets_of
from nemo_gym.servers.capturing import body_limit_of, close_with, open_capture_store
from nemo_gym.servers.failures import call_failed_in
from nemo_gym.servers.instance import BaseRunServerInstanceConfig
from nemo_gym.servers.openai_chat import NeMoGymChatCompletion
from nemo_gym.servers.openai_responses import NeMoGymResponse
from nemo_gym.servers.raw import RawRoute, raw_route
from nemo_gym.servers.simple_server import SimpleServer
from nemo_gym.servers.stack import JsonRoute, OrjsonRequest, new_app
from nemo_gym.servers.synthetic_stream import chat_events, responses_events
from nemo_gym.wire.dialects import RESPONSES, DialectName, dialect_of_route, error_body
from nemo_gym.wire.json import JsonError, as_object, dumps, loads_strictly

__all__ = ["BaseResponsesAPIModelConfig", "ModelServer", "SimpleResponsesAPIModel"]


class BaseResponsesAPIModelConfig(BaseRunServerInstanceConfig):
    """Settings of a model server; components add fields of their own."""


class ModelServer(SimpleServer):
    """The stack of a model server, around whatever routes a subclass gives it."""

    KIND: ClassVar[ServerKind | None] = "responses_api_models"
    SERVED_DIALECTS: ClassVar[tuple[DialectName, ...] | None] = None
    """What this server answers, so that a run that asks for another is refused before it starts.

    Written out in the class of the entrypoint, since it is read from the source. None: not said.
    """

    config: BaseResponsesAPIModelConfig

    def setup_webserver(self) -> FastAPI:
        """Return the app with the routes of `model_routes`."""
        redactor = redactor_of(self)

        def answer(path: str, exc: BaseException) -> tuple[int, object]:
            failed = call_failed_in(exc)
            if failed is not None and _is_object(failed.body):
                # The provider has said it in the client's dialect; its status and words go on.
                return failed.status, redactor.redact(failed.body).encode()
            status = 500 if failed is None else failed.status
            return status, _error(path, status, redactor.redact(f"{type(exc).__name__}: {exc}"))

        settings = self.server_client.global_config_dict
        store, limit = open_capture_store(settings), body_limit_of(settings)
        name, secrets = self.config.name, secrets_of(self)

        def layers(app: ASGIApp) -> ASGIApp:
            return model_call_stack(
                app, store=store, model_ref_name=name, body_limit=limit, secrets=secrets
            )

        app = new_app(name, layers, answer, stopped_calls(name))
        if store is not None:
            close_with(app, store)
        for route in self.model_routes():
            raw_route(app, route.path, route.app, route.methods, direct=True)
        return app

    def model_routes(self) -> Iterable[RawRoute]:
        """Return the raw routes of this server, tried in order and before all others."""
        return ()


class SimpleResponsesAPIModel(ModelServer):
    """A model behind two methods; each may take `request: Request` beside `body`."""

    def setup_webserver(self) -> FastAPI:
        """Return the app with `/v1/responses`, `/v1/chat/completions` and `/v1/messages`."""
        app = super().setup_webserver()
        routes: list[tuple[str, Callable[..., Any], type[JsonRoute]]] = [
            ("/v1/responses", self.responses, _StreamedResponses),
            ("/v1/chat/completions", self.chat_completions, _StreamedChat),
            ("/v1/messages", self.messages, JsonRoute),
        ]
        for path, method, route_class in routes:
            app.router.add_api_route(
                path, method, methods=["POST"], response_model=Any, route_class_override=route_class
            )
        return app

    @abstractmethod
    async def chat_completions(self, *args: Any, **kwargs: Any) -> NeMoGymChatCompletion:
        """Answer a Chat Completions create request."""

    @abstractmethod
    async def responses(self, *args: Any, **kwargs: Any) -> NeMoGymResponse:
        """Answer a Responses create request."""

    async def messages(self, request: Request) -> Any:
        """Answer a Messages create request; the default says that this server does not."""
        offered = "/v1/responses or /v1/chat/completions"
        message = f"{self.config.name} does not offer /v1/messages; use {offered}"
        return Response(_error("/v1/messages", 404, message), 404, media_type="application/json")


def _error(path: str, status: int, message: str) -> bytes:
    """Return an error body in the dialect of the route; on other routes in that of Responses."""
    return error_body(dialect_of_route(path.encode()) or RESPONSES, status, message)


def _is_object(text: str) -> bool:
    try:
        return isinstance(loads_strictly(text), dict)
    except JsonError:
        return False


# Only a body that may ask for a stream is decoded a second time.
_STREAM_KEYS = frozenset({"stream", "stream_options"})
_MAY_STREAM = re.compile(rb'"stream"\s*:\s*true')


def _decoded(body: bytes) -> object:
    try:
        return loads_strictly(body)
    except JsonError:
        return None  # the validated route says what is wrong with it


def _replay(body: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


class _StreamedRoute(JsonRoute):
    """A validated route whose complete answer is sent as events to a client that wants a stream."""

    events: Callable[[Mapping[str, Any], Mapping[str, Any]], Iterator[bytes]]
    """What was asked and the complete answer in, the events of the stream out."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_streamed(request: Request) -> Response:
            # Handed on as it is: its body is read only once.
            request = OrjsonRequest(request.scope, request.receive)
            body = await request.body()
            if _MAY_STREAM.search(body) is None:
                return await handle(request)
            asked = _decoded(body)
            if not isinstance(asked, dict) or asked.get("stream") is not True:
                return await handle(request)
            # The method makes whole answers: it must not pass the wish for a stream on.
            rest = {key: asked[key] for key in asked if key not in _STREAM_KEYS}
            complete = await handle(OrjsonRequest(request.scope, _replay(dumps(rest))))
            if complete.status_code != 200:
                return complete
            answer = as_object(loads_strictly(bytes(complete.body))) or {}
            events = self.events(asked, answer)
            return StreamingResponse(iter(list(events)), media_type="text/event-stream")

        return handle_streamed


def _responses_events(_asked: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[bytes]:
    return responses_events(answer)


def _chat_events(asked: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[bytes]:
    options = asked.get("stream_options")
    wanted = isinstance(options, dict) and options.get("include_usage") is True
    return chat_events(answer, include_usage=wanted)


class _StreamedResponses(_StreamedRoute):
    events = staticmethod(_responses_events)


class _StreamedChat(_StreamedRoute):
    events = staticmethod(_chat_events)
