"""Check the size budget: module <= 500 lines, function <= 40, test file <= 400."""

import ast
import statistics
import sys
from pathlib import Path

MODULE_LIMIT = 500
FUNCTION_LIMIT = 40
TEST_FILE_LIMIT = 400


def function_lengths(path: Path) -> list[tuple[str, int]]:
    """Return each function of a module with its length in lines, docstring and blanks left out."""
    tree = ast.parse(path.read_text())
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            doc = 0
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                doc = (first.end_lineno or first.lineno) - first.lineno + 1
            found.append(
                (f"{path}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1 - doc)
            )
    return found


def main() -> int:
    """Print what is over budget; return 1 when anything is."""
    modules = sorted(Path("src").rglob("*.py"))
    sizes = {path: len(path.read_text().splitlines()) for path in modules}
    over = [f"{p}: {n} lines (limit {MODULE_LIMIT})" for p, n in sizes.items() if n > MODULE_LIMIT]
    for path in modules:
        over += [
            f"{w}: {n} lines (limit {FUNCTION_LIMIT})"
            for w, n in function_lengths(path)
            if n > FUNCTION_LIMIT
        ]
    for path in sorted(Path("tests").rglob("*.py")):
        n = len(path.read_text().splitlines())
        if n > TEST_FILE_LIMIT:
            over.append(f"{path}: {n} lines (limit {TEST_FILE_LIMIT})")
    total = sum(sizes.values())
    print(
        f"{len(sizes)} modules, {total} lines, "
        f"median {statistics.median(sizes.values()):.0f}, max {max(sizes.values())}"
    )
    for line in over:
        print(f"over budget: {line}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
