"""Secrets planted wherever one can come from are in nothing that a server leaves or answers."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from urllib.parse import quote

import pytest

from nemo_gym.capture.store import CaptureStore
from support.collector import Received, http_collector
from support.eval_command import environ_of
from support.eval_servers import COUNTER, env_start
from support.gym_command import gym
from support.provider import Behaviour, ReceivedRequest
from support.real_clients import OutsideWorld, capture_serve, outside_world
from support.rollouts import lines_of

SERVER_KEY = "sk-planted-server-key-1"
PASSWORD = "planted/pass word-2"  # noqa: S105 - to be looked for
QUERY_KEY = "planted-query-key-3"
CLIENT_KEY = "sk-planted-client-key-4"
OTHER_KEY = "planted-x-api-key-5"
COOKIE = "planted-cookie-6"
CLIENT_QUERY = "planted-client-query-7"
SECRETS = (SERVER_KEY, PASSWORD, QUERY_KEY, CLIENT_KEY, OTHER_KEY, COOKIE, CLIENT_QUERY)
CLIENT_SECRETS = (CLIENT_KEY, OTHER_KEY, COOKIE, CLIENT_QUERY)
HEADERS = {
    "authorization": f"Bearer {CLIENT_KEY}",
    "x-api-key": OTHER_KEY,
    "cookie": f"session={COOKIE}; theme=dark",
    "content-type": "application/json",
    "x-claude-code-session-id": "session-of-the-client",
}
HEADERS_OF = {"session": "x-claude-code-session-id", "message": "x-opencode-request"}
ROUTES = ("/v1/responses", "/v1/chat/completions", "/v1/messages")


def _echo(request: ReceivedRequest) -> str:
    """An error text with all that came: target, headers, and the credentials in clear."""
    told = [request.target, *(f"{k}: {v}" for k, v in request.headers.items()), *SECRETS]
    return "; ".join(told)


def _refusal(status: int) -> Callable[[ReceivedRequest], Behaviour]:
    def refuse(request: ReceivedRequest) -> Behaviour:
        error = {"error": {"type": "auth", "message": _echo(request)}}
        return Behaviour(status=status, body=json.dumps(error).encode())

    return refuse


def _moved(request: ReceivedRequest) -> Behaviour:
    return Behaviour(status=302, body=_echo(request).encode())


def _error_in_success(request: ReceivedRequest) -> Behaviour:
    return Behaviour(body=json.dumps({"error": {"message": _echo(request)}}).encode())


def _echo_in_success(request: ReceivedRequest) -> Behaviour:
    return Behaviour(body=json.dumps({"headers": dict(request.headers)}).encode())


def _error_in_stream(request: ReceivedRequest) -> Behaviour:
    error = {"type": "error", "error": {"type": "auth", "message": _echo(request)}}
    body = b'data: {"type":"ping"}\n\nevent: error\ndata: ' + json.dumps(error).encode() + b"\n\n"
    return Behaviour(body=body, content_type="text/event-stream")


def _half_a_body(request: ReceivedRequest) -> Behaviour:
    return Behaviour(body=_echo(request).encode() * 2, close="mid_body")


def _no_http(_request: ReceivedRequest) -> Behaviour:
    return Behaviour(invalid_http=True)


FAULTS = (
    *(_refusal(400), _refusal(401), _refusal(500), _error_in_stream, _half_a_body, _no_http),
    *(_moved, _error_in_success, _echo_in_success),
)


@pytest.fixture
def world() -> Generator[OutsideWorld]:
    with outside_world() as outside:
        yield outside


def _call(url: str, route: str, **ids: str) -> str:
    """Call with all credentials of a client, and with `ids` in place of that of its session."""
    body = json.dumps({"model": "m", "stream": True, "input": "q", "messages": []}).encode()
    headers = HEADERS | {HEADERS_OF[name]: given for name, given in ids.items()}
    request = urllib.request.Request(  # noqa: S310 - loopback
        f"{url}{route}?key={CLIENT_QUERY}", data=body, headers=headers
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - loopback
            return str(answer.read(), "latin-1")
    except urllib.error.HTTPError as error:
        return f"{error.headers}{error.read().decode('latin-1')}"
    except OSError as error:
        return str(error)


def _written(folder: Path) -> dict[str, str]:
    """Return what is in every file; the name of a file is a text, too."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): f"{path.name} {path.read_bytes().decode('latin-1')}" for path in files}


def _ids(rows: Sequence[object]) -> list[tuple[object, object]]:
    """Return what is stored as the ids of session and message in each row."""
    keys = ("client_session_id", "client_assistant_message_id")
    return [tuple(row.get(key) for key in keys) for row in rows if isinstance(row, dict)]  # type: ignore[misc]


def _holders(texts: dict[str, str], secrets: tuple[str, ...]) -> dict[str, list[str]]:
    """Return which texts hold which secrets, in any spelling."""
    found: dict[str, list[str]] = {}
    for name, text in texts.items():
        held = [s for s in secrets if any(form in text for form in (s, quote(s, safe="")))]
        if held:
            found[name] = held
    return found


def _exported(received: Received) -> dict[str, str]:
    """What left by OTLP; the calls are in there, so that something was looked at."""
    assert "gen_ai.client.operation.duration" in received.names()
    assert any(span.name.startswith("POST /v1/") for span in received.spans())
    return {"metrics": str(received.metrics), "traces": str(received.traces)}


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - loopback
        return str(answer.read(), "utf-8")


def _upstream(world: OutsideWorld) -> str:
    userinfo = f"http://someone:{quote(PASSWORD, safe='')}@"
    return f"{world.provider.origin.replace('http://', userinfo)}/v1?key={QUERY_KEY}"


def test_no_planted_secret_is_in_a_file_a_log_a_metric_or_an_address_book(
    world: OutsideWorld, tmp_path: Path
) -> None:
    settings = (
        *("--model-api-key", SERVER_KEY, "++observability_enabled=true"),
        f"++model_call_capture_dir={tmp_path / 'captures'}",
        "++policy_model.responses_api_models.vllm_model.max_tries=2",
        "++policy_model.responses_api_models.vllm_model.retry_for_s=0.1",
        *("++telemetry.metrics.enabled=true", "++telemetry.prometheus.enabled=true"),
        "++telemetry.traces.enabled=true",
    )
    told: dict[str, str] = {}
    answer = world.provider.decide
    console: list[str] = []
    with (
        http_collector() as exported,
        env_start(
            tmp_path,
            _upstream(world),
            *settings,
            f"++telemetry.otlp.endpoint={exported.endpoint}",
            model_type="vllm_model",
            console=console,
        ) as port,
    ):
        head = f"http://127.0.0.1:{port.partition('=')[2]}"
        servers = json.loads(_get(f"{head}/servers"))["servers"]
        model = next(s["addresses"][0] for s in servers if s["name"] == "policy_model")
        for number, fault in enumerate(FAULTS):
            world.provider.decide = fault
            for route in ROUTES:
                told[f"{fault.__name__} {route}"] = _call(f"{model}/ng-rollout/{number}-0", route)
                _call(model, route)
        world.provider.decide = answer
        for secret in SECRETS:
            _call(f"{model}/ng-rollout/named-0", ROUTES[1], session=secret, message=f"m-{secret}")
        told |= {path: _get(head + path) for path in ("/config", "/servers", "/metrics")}
        named = CaptureStore(tmp_path / "captures").read("named-0")
        calls = [CaptureStore(tmp_path / "captures").read(f"{n}-0") for n in range(len(FAULTS))]

    assert [len(rows) for rows in calls] == [len(ROUTES)] * len(FAULTS)
    assert _ids(named) == [(None, None)] * len(SECRETS)
    assert {r.key for r in world.provider.requests} == {SERVER_KEY}
    written = _written(tmp_path)
    assert _holders(written, (SERVER_KEY, PASSWORD, QUERY_KEY)) == {}
    # What a client sent is its own, where nothing went wrong.
    echoes = f"{FAULTS.index(_echo_in_success)}-0."
    failed = {name: text for name, text in written.items() if f"/{echoes}" not in name}
    assert _holders(failed, SECRETS) == {}
    assert _holders({"console": "".join(console)} | _exported(exported), SECRETS) == {}
    assert _holders(told, (SERVER_KEY, PASSWORD, QUERY_KEY)) == {}


def test_a_client_gets_its_error_as_it_came_and_no_row_holds_what_is_secret_in_it(
    world: OutsideWorld, tmp_path: Path
) -> None:
    folder = tmp_path / "captures"
    upstream = f"{world.provider.base_url}?key={QUERY_KEY}"
    with capture_serve(upstream, folder, tmp_path / "serve.log") as origin:
        world.provider.decide = _refusal(401)
        answer = _call(origin, "/v1/messages")
        world.provider.decide = _error_in_stream
        _call(origin, "/v1/messages")

    refused, broken = CaptureStore(folder).read("session-of-the-client")
    assert isinstance(refused, dict)
    assert isinstance(broken, dict)
    assert [refused["error_category"], broken["error_category"]] == ["auth", "upstream_error"]
    assert "theme=dark" in refused["response"]["error"]["message"]
    assert _holders({"answer": answer}, CLIENT_SECRETS) == {"answer": [*CLIENT_SECRETS]}
    assert _holders(_written(tmp_path), (*CLIENT_SECRETS, QUERY_KEY)) == {}


@pytest.mark.parametrize("key", [None, SERVER_KEY], ids=["the-client's-key", "a-key-of-its-own"])
def test_a_key_that_a_client_takes_for_its_session_is_in_no_file_and_names_none(
    world: OutsideWorld, tmp_path: Path, key: str | None
) -> None:
    folder = tmp_path / "captures"
    secrets = (*CLIENT_SECRETS, QUERY_KEY, *([] if key is None else [key]))
    ids = [i for s in secrets for i in (s, f"mine-{s}", f"Bearer {s}", s.replace("-", "%2D"))]
    upstream = f"{world.provider.base_url}?key={QUERY_KEY}"
    with capture_serve(upstream, folder, tmp_path / "serve.log", key=key) as origin:
        for given in ids:
            _call(origin, "/v1/messages", session=given, message=given)
            _call(f"{origin}/ng-rollout/mine-0", "/v1/messages", session=given, message=given)
        _call(origin, "/v1/messages", session="a-session", message="a-message")

    store = CaptureStore(folder)
    assert store.rollouts() == ["a-session", "mine-0", "others"]
    assert _ids(store.read("others")) == _ids(store.read("mine-0")) == [(None, None)] * len(ids)
    assert _ids(store.read("a-session")) == [("a-session", "a-message")]
    written = _written(tmp_path)
    assert str(tmp_path / "serve.log") in written
    assert _holders(written, (*secrets, *(s.replace("-", "%2D") for s in secrets))) == {}


def test_no_secret_is_in_the_rows_of_rollouts_that_failed(
    world: OutsideWorld, tmp_path: Path
) -> None:
    world.provider.decide = _refusal(401)
    (tmp_path / "rows.jsonl").write_text('{"responses_create_params": {"input": "q"}}\n')
    ended = gym(
        *("eval", "run", "--resources-server", "counter", "--search-dir", COUNTER),
        *("--model-type", "openai_model", "--model-url", _upstream(world), "--model", "m"),
        *("--model-api-key", SERVER_KEY, "--agent", "counter_agent"),
        *("--input", "rows.jsonl", "--output", "x.jsonl", "++observability_enabled=true"),
        f"++model_call_capture_dir={tmp_path / 'captures'}",
        cwd=tmp_path,
        environ=environ_of(tmp_path),
    )

    assert ended.code == 1, ended.err
    (failed,) = lines_of(tmp_path / "x_failures.jsonl")
    assert failed["_ng_provider_status"] == 401
    written = _written(tmp_path) | {"out": ended.out, "err": ended.err}
    assert _holders(written, (SERVER_KEY, PASSWORD, QUERY_KEY)) == {}
