"""Overrides and merging: what is written is what is read, and the last source wins."""

from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.config.document import Document, KeyPath, parse_document
from nemo_gym.config.merge import Layers
from nemo_gym.config.overrides import (
    Change,
    Override,
    apply_override,
    format_override,
    parse_override,
)

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_key = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_-]{0,8}\Z")
_leaf = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | _text
)
_value = st.recursive(
    _leaf,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(_text, below, max_size=3),
    max_leaves=8,
)
_path = st.lists(_key | st.integers(0, 99).map(str), min_size=1, max_size=4).map(tuple)
# Few names, so that two trees meet in most of their keys.
_few = st.sampled_from(["a", "b", "c"])
_tree = st.dictionaries(
    _few,
    st.recursive(
        _leaf, lambda below: st.dictionaries(_few, below, min_size=1, max_size=3), max_leaves=8
    ),
    max_size=3,
)
# Merging can only be bracketed at will where a name is a section in every tree, or in none.
_steady = st.recursive(
    st.dictionaries(st.sampled_from(["a", "b"]), _leaf, max_size=2),
    lambda below: st.builds(
        lambda leaves, sections: {**leaves, **sections},
        st.dictionaries(st.sampled_from(["a", "b"]), _leaf, max_size=2),
        st.dictionaries(st.sampled_from(["s", "t"]), below, max_size=2),
    ),
    max_leaves=6,
)
_few_path = st.lists(_few, min_size=1, max_size=4).map(tuple)


@given(st.sampled_from([Change.SET, Change.ADD, Change.PUT]), _path, _value)
def test_an_override_reads_back_as_it_was_written(
    change: Change, path: KeyPath, value: object
) -> None:
    override = Override(change, path, value)

    assert parse_override(format_override(override)) == override


@given(_path)
def test_a_deletion_reads_back_as_it_was_written(path: KeyPath) -> None:
    override = Override(Change.DELETE, path)

    assert parse_override(format_override(override)) == override


@given(_tree, _tree)
def test_what_the_last_source_sets_is_what_holds(
    first: dict[str, object], last: dict[str, object]
) -> None:
    merged = _merged(first, last)

    for path, value in _leaves(last):
        assert merged.get(path) == (True, value)


@given(_tree, _tree)
def test_what_the_last_source_leaves_alone_stays(
    first: dict[str, object], last: dict[str, object]
) -> None:
    merged = _merged(first, last)

    said = {path for path, _ in _leaves(last)}
    for path, value in _leaves(first):
        shadowed = any(path[: len(p)] == p or p[: len(path)] == path for p in said)
        if not shadowed:
            assert merged.get(path) == (True, value)


def test_an_empty_section_leaves_a_section_alone_and_replaces_a_value() -> None:
    assert _merged({"a": {"b": 1}}, {"a": {}}).tree == {"a": {"b": 1}}
    assert _merged({"a": 1}, {"a": {}}).tree == {"a": {}}


@given(_steady, _steady, _steady)
def test_merging_does_not_depend_on_where_the_brackets_are(
    one: dict[str, object], two: dict[str, object], three: dict[str, object]
) -> None:
    left = _merged(_merged(one, two).tree, three)
    right = _merged(one, _merged(two, three).tree)

    assert left.tree == right.tree


@given(_tree, _tree)
def test_every_key_names_the_source_that_set_it(
    first: dict[str, object], last: dict[str, object]
) -> None:
    merged = _merged(first, last)

    for path in _keys(merged.tree):
        there = {name for name, tree in (("0", first), ("1", last)) if path in set(_keys(tree))}
        assert merged.origins[path] in there
    assert set(merged.origins) == set(_keys(merged.tree))


@given(_tree, _few_path, _value)
def test_a_put_can_be_read_where_it_was_put(
    tree: dict[str, object], path: KeyPath, value: object
) -> None:
    layers = _merged(tree)
    layers.put(path, value, "here") if _can_pass(layers, path) else None

    if _can_pass(_merged(tree), path):
        assert layers.get(path) == (True, value)
        assert layers.origin(path) == "here"


@given(_tree)
def test_adding_a_key_and_deleting_it_changes_nothing(tree: dict[str, object]) -> None:
    layers = _merged(tree)
    apply_override(layers, Override(Change.ADD, ("brand-new-key",), {"a": 1}))
    apply_override(layers, Override(Change.DELETE, ("brand-new-key",)))

    assert layers == _merged(tree)


@given(_value)
def test_a_value_in_a_file_is_the_value_of_an_override(value: object) -> None:
    written = format_override(Override(Change.SET, ("key",), value)).removeprefix("key=")

    assert parse_document(f"key: {written}", "file").tree == {"key": value}


def _merged(*trees: dict[str, object]) -> Layers:
    layers = Layers()
    for number, tree in enumerate(trees):
        layers.add(Document(str(number), tree))
    return layers


def _leaves(tree: object, path: KeyPath = ()) -> list[tuple[KeyPath, object]]:
    if isinstance(tree, dict) and tree:
        return [leaf for key, below in tree.items() for leaf in _leaves(below, (*path, key))]
    if path and tree != {}:
        return [(path, tree)]
    return []


def _keys(tree: object, path: KeyPath = ()) -> list[KeyPath]:
    if not isinstance(tree, dict):
        return []
    return [k for key, below in tree.items() for k in [(*path, key), *_keys(below, (*path, key))]]


def _can_pass(layers: Layers, path: KeyPath) -> bool:
    for depth in range(1, len(path)):
        exists, value = layers.get(path[:depth])
        if exists and value is not None and not isinstance(value, dict):
            return False
    return True
