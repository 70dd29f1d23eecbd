"""What a module offers is listed: `__all__` names what is there, and nobody reaches past it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import nemo_gym

ROOT = Path(nemo_gym.__file__).parent
TREES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text())
    for path in sorted(ROOT.rglob("*.py"))
    if path.name != "__main__.py"  # a script: nobody imports from it
}


def test_every_module_lists_names_that_are_there_each_once() -> None:
    wrong = {}
    for module, tree in TREES.items():
        listed = _listed(tree)
        if listed is None and len(tree.body) > 1:  # more than a docstring
            wrong[module] = ["no __all__"]
        elif listed is not None:
            there = set(_bound(tree.body))
            wrong[module] = [n for n in listed if n not in there or listed.count(n) > 1]

    assert {module: names for module, names in wrong.items() if names} == {}


def test_no_module_imports_a_private_name_of_another() -> None:
    taken = {
        f"{module}: {alias.name}"
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nemo_gym")
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    }

    assert taken == set()


def _listed(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements bind, in branches too."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Import() | ast.ImportFrom():
                yield from (alias.asname or alias.name for alias in node.names)
            case ast.Assign():
                yield from (ast.unparse(target) for target in node.targets)
            case ast.AnnAssign():
                yield ast.unparse(node.target)
            case ast.If():
                yield from _bound([*node.body, *node.orelse])
            case _:
                pass
