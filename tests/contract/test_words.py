"""Names are for readers: a class of the product means one thing, wherever it is read."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_class_name_means_one_thing() -> None:
    where: dict[str, list[str]] = defaultdict(list)
    for folder in ("layers", "functions", "infra"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    where[node.name.lstrip("_")].append(str(path.relative_to(ROOT)))
    assert len(where) > 500
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}


def test_the_modules_that_docstrings_name_exist() -> None:
    """``name.py`` in the folder of the file that names it, or anywhere below the product."""
    folders = [ROOT / folder for folder in ("layers", "functions", "infra", "tests", "docs")]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    names = {path.name for path in files}
    product = [path for path in files if path.is_relative_to(ROOT / "layers") or path.is_relative_to(ROOT / "functions")]
    mention = re.compile(r"``(?:\w+/)*(\w+\.py)(?=[:`])")
    named = {(str(path.relative_to(ROOT)), name) for path in product for name in mention.findall(path.read_text())}
    assert len(named) > 100
    assert sorted((path, name) for path, name in named if name not in names) == []


def test_names_of_tests_are_short_sentences() -> None:
    names = [
        node.name
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    assert len(names) > 3_000
    assert [name for name in names if len(name) > 80] == []
