"""Types of the CDK are read for the services that are used, and for no others."""

import ast
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec

from tests.infra.synthesis import ROOT


def imported() -> Iterator[str]:
    """Modules of the CDK, by all programs that import one."""
    for folder in ("functions", "infra", "layers", "localstack", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            if "aws_cdk" in (text := path.read_text()):
                for node in ast.walk(ast.parse(text)):
                    if isinstance(node, ast.Import):
                        yield from (name.name for name in node.names if name.name.startswith("aws_cdk"))
                    elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aws_cdk"):
                        assert node.module is not None
                        yield node.module
                        names = (f"{node.module}.{name.name}" for name in node.names)
                        yield from (name for name in names if not name.rpartition(".")[2][0].isupper() and find_spec(name))


def test_types_of_each_service_that_is_used_are_looked_at() -> None:
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    followed = {override["follow_imports"]: override["module"] for override in overrides if "follow_imports" in override}
    assert followed == {"skip": ["aws_cdk.*"], "normal": sorted(set(imported()))}
