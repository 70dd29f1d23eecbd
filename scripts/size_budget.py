"""Check the size budget, and two habits that grow unseen: broad excepts and patches.

Module <= 500 lines (median <= 150), function <= 40, test file <= 400; excepts that catch everything
and keep it, per 1,000 lines of source; patches per 1,000 lines of tests.
"""

import ast
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

MODULE_LIMIT = 500
MEDIAN_LIMIT = 150
FUNCTION_LIMIT = 40
TEST_FILE_LIMIT = 400
BROAD_EXCEPTS_PER_KLOC = 0.6
PATCHES_PER_KLOC = 3.0
_PATCHES = {"setattr", "setitem", "delattr", "delitem", "patch", "object"}


def main() -> int:
    """Print what is over budget; return 1 when anything is."""
    modules = {path: path.read_text() for path in sorted(Path("src").rglob("*.py"))}
    tests = {path: path.read_text() for path in _test_files()}
    over = [*_too_long(modules, MODULE_LIMIT), *_too_long(tests, TEST_FILE_LIMIT)]
    sizes = [_lines(text) for text in modules.values()]
    median = statistics.median(sizes)
    if median > MEDIAN_LIMIT:
        over.append(f"median module: {median:.0f} lines (limit {MEDIAN_LIMIT})")
    broad: list[str] = []
    for path, text in modules.items():
        tree = ast.parse(text)
        over += _long_functions(path, tree)
        broad += [f"{path}:{line}" for line in _broad_excepts(tree)]
    patches = [f"{path}:{line}" for path, text in tests.items() for line in _patches(text)]
    over += _too_many("broad excepts", broad, sum(sizes), BROAD_EXCEPTS_PER_KLOC)
    test_lines = sum(map(_lines, tests.values()))
    over += _too_many("patches", patches, test_lines, PATCHES_PER_KLOC)
    print(
        f"{len(sizes)} modules, {sum(sizes)} lines, median {median:.0f}, max {max(sizes)}; "
        f"{len(broad)} broad excepts; {len(patches)} patches in {test_lines} lines of tests"
    )
    for line in over:
        print(f"over budget: {line}")
    return 1 if over else 0


def _test_files() -> Iterator[Path]:
    for path in sorted(Path("tests").rglob("*.py")):
        if "node_modules" not in path.parts:
            yield path


def _lines(text: str) -> int:
    return len(text.splitlines())


def _too_long(files: dict[Path, str], limit: int) -> list[str]:
    sizes = {path: _lines(text) for path, text in files.items()}
    return [f"{path}: {n} lines (limit {limit})" for path, n in sizes.items() if n > limit]


def _long_functions(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield the functions that are too long, docstrings left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            doc = 0
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                doc = (first.end_lineno or first.lineno) - first.lineno + 1
            length = (node.end_lineno or node.lineno) - node.lineno + 1 - doc
            if length > FUNCTION_LIMIT:
                yield f"{path}:{node.lineno} {node.name}: {length} lines (limit {FUNCTION_LIMIT})"


def _broad_excepts(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of excepts that catch everything and raise nothing."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            caught = "BaseException" if node.type is None else ast.unparse(node.type)
            raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
            if caught in {"Exception", "BaseException"} and not raises:
                yield node.lineno


def _patches(text: str) -> Iterator[int]:
    """Yield the lines of calls that put something else into another module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value).rpartition(".")[2]
            if node.func.attr in _PATCHES and owner in {"monkeypatch", "mock", "patch", "mocker"}:
                yield node.lineno


def _too_many(what: str, found: list[str], lines: int, per_kloc: float) -> list[str]:
    if len(found) * 1000 <= per_kloc * lines:
        return []
    share = len(found) * 1000 / lines
    return [f"{what}: {share:.2f} in 1,000 lines (limit {per_kloc}): {', '.join(found)}"]


if __name__ == "__main__":
    sys.exit(main())
