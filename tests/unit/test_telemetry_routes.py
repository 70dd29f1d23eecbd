"""The name of a request's route: bounded, whatever a client asks for."""

from types import SimpleNamespace
from typing import Any

import pytest

from nemo_gym.telemetry.routes import rollout_and_path, route_of

ROUTE = SimpleNamespace(path="/v1/{rest}")


@pytest.mark.parametrize(
    ("scope", "name"),
    [
        ({"route": ROUTE, "raw_path": b"/v1/secret-42"}, "/v1/{rest}"),
        ({"raw_path": b"/run"}, "/run"),
        ({"raw_path": b"/ng-rollout/3-0/v1/responses"}, "/v1/responses"),
        ({"raw_path": b"/ng-rollout/../v1/responses"}, "unmatched"),
        ({"raw_path": b"/v1/secret-42"}, "unmatched"),
        ({"raw_path": b"/\xff"}, "unmatched"),
        ({"route": SimpleNamespace()}, "unmatched"),
        ({}, "unmatched"),
    ],
    ids=[
        "found-by-the-app",
        "left-before-one-was-found",
        "left-under-a-rollout",
        "no-rollout",
        "a-path-of-the-client-s-own",
        "bytes-that-are-no-text",
        "mounted-app-without-a-path",
        "nothing",
    ],
)
def test_a_route_is_named_by_its_template_or_not_at_all(scope: dict[str, Any], name: str) -> None:
    assert route_of(scope) == name


def test_the_rollout_of_a_path_is_told_apart_from_the_rest() -> None:
    assert rollout_and_path({"raw_path": b"/ng-rollout/3-0/run"}) == ("3-0", b"/run")
    assert rollout_and_path({"raw_path": b"/run"}) == (None, b"/run")
