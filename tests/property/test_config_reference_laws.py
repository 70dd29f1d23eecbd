"""References resolve as OmegaConf, whose syntax they are, resolves them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nemo_gym.config.document import Document
from nemo_gym.config.merge import Layers
from nemo_gym.config.problems import Problems
from nemo_gym.config.reference_text import parse_text
from nemo_gym.config.references import resolve

_NAMES = ["a", "b", "c", "d"]
_paths = st.lists(st.sampled_from(_NAMES), min_size=1, max_size=3).map(".".join)
_references = st.one_of(
    _paths.map(lambda path: f"${{{path}}}"),
    _paths.map(lambda path: f"${{.{path}}}"),
    _paths.map(lambda path: f"${{..{path}}}"),
    _paths.map(lambda path: f"http://${{{path}}}/v1"),
    st.tuples(_paths, _paths).map(lambda two: f"${{{two[0]}}}-${{{two[1]}}}"),
    _paths.map(lambda path: f"${{oc.select:{path},7}}"),
    st.just("${oc.env:NEMO_GYM_TEST_UNSET,fallback}"),
    st.just("${oc.env:NEMO_GYM_TEST_UNSET,null}"),
    st.just("\\${a}"),
    st.just("x\\\\${a}"),
)
_leaf = st.integers(0, 9) | st.booleans() | st.sampled_from(["text", "1e3", "$"]) | _references
_section = st.dictionaries(
    st.sampled_from(_NAMES),
    st.recursive(
        _leaf,
        lambda below: st.dictionaries(st.sampled_from(_NAMES), below, max_size=2),
        max_leaves=4,
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=400)
@given(_section)
def test_a_tree_resolves_as_omegaconf_resolves_it(tree: dict[str, object]) -> None:
    problems = Problems()
    ours = resolve(_layers(tree), {}, problems)
    try:
        theirs = OmegaConf.to_container(OmegaConf.create(tree), resolve=True)
    except (OmegaConfBaseException, RecursionError):
        theirs = None

    if theirs is not None and not _has_section_in_text(theirs):
        assert not problems.found
        assert not ours.wanted
        assert ours.tree == theirs


@settings(max_examples=400)
@given(_section)
def test_what_resolves_here_without_a_word_resolves_in_omegaconf(tree: dict[str, object]) -> None:
    problems = Problems()
    ours = resolve(_layers(tree), {}, problems)

    if not problems.found and not ours.wanted:
        assert ours.tree == OmegaConf.to_container(OmegaConf.create(tree), resolve=True)


@given(_section)
def test_resolving_leaves_the_merged_tree_as_it_was(tree: dict[str, object]) -> None:
    layers = _layers(tree)
    resolve(layers, {}, Problems())

    assert layers == _layers(tree)


@given(st.text(st.characters(exclude_characters="$")))
def test_text_without_a_dollar_is_itself(text: str) -> None:
    assert parse_text(text) == (text,)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_ring_of_references_is_one_mistake_that_shows_the_ring(length: int) -> None:
    keys = [f"k{number}" for number in range(length)]
    tree: dict[str, object] = {
        key: f"${{{after}}}" for key, after in zip(keys, [*keys[1:], keys[0]], strict=True)
    }
    problems = Problems()
    resolve(_layers(tree), {}, problems)

    assert len(problems.found) == 1
    assert " → ".join([*keys, keys[0]]) in problems.found[0].what


def _layers(tree: dict[str, object]) -> Layers:
    layers = Layers()
    layers.add(Document("file.yaml", tree))
    return layers


def _has_section_in_text(resolved: object) -> bool:
    """Whether a section was put into a text: OmegaConf writes its repr, which is refused here."""
    if isinstance(resolved, dict):
        return any(_has_section_in_text(below) for below in resolved.values())
    return isinstance(resolved, str) and "{" in resolved.replace("${", "")
