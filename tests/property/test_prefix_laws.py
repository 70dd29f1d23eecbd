"""The rollout prefix on a request: what holds for every id and every path."""

from urllib.parse import quote, unquote

from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.capture.prefix import Refusal, Routed, route
from nemo_gym.wire.json import loads_object

IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", fullmatch=True)
PATHS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=4)


def scope_of(raw_path: str) -> dict[str, object]:
    return {"type": "http", "path": unquote(raw_path), "raw_path": raw_path.encode("ascii")}


@given(IDS, PATHS)
def test_a_prefixed_path_comes_out_as_the_path_without_it(
    rollout_id: str, segments: list[str]
) -> None:
    rest = "/x/" + "/".join(quote(segment, safe="") for segment in segments)
    routed = route(scope_of(f"/ng-rollout/{rollout_id}{rest}"))

    assert isinstance(routed, Routed)
    assert routed.rollout_id == rollout_id
    assert routed.raw_path == routed.scope["raw_path"] == rest.encode()
    assert routed.scope["path"] == unquote(rest)


@given(st.text(min_size=1).filter(lambda text: not text.isascii() or set(text) & set(" %\0~:@")))
def test_an_id_outside_the_grammar_is_refused(text: str) -> None:
    encoded = quote(text, safe="~:@", errors="replace").replace("/", "%2F")
    refusal = route(scope_of(f"/ng-rollout/{encoded}/v1/messages"))

    assert isinstance(refusal, Refusal)
    assert refusal.status == 400
    body = loads_object(refusal.body)
    assert body is not None
    assert body["type"] == "error"


@given(PATHS)
def test_a_path_without_prefix_is_left_as_it_is(segments: list[str]) -> None:
    scope = scope_of("/y/" + "/".join(quote(segment, safe="") for segment in segments))

    routed = route(scope)

    assert isinstance(routed, Routed)
    assert routed.scope is scope
    assert routed.rollout_id is None
