"""Names are for readers: a class of the product means one thing, wherever it is read."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_class_name_means_one_thing() -> None:
    where: dict[str, list[str]] = defaultdict(list)
    for folder in ("layers", "functions", "infra"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    where[node.name].append(str(path.relative_to(ROOT)))
    assert len(where) > 500
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}
