"""The pages of docs/reference are those of the code, and every setting that the code reads has its row."""

import ast
import re
from dataclasses import fields

import pytest
from moorage.sandbox.machine_bounds import MachineBounds
from moorage.settings import GROUPS, OTHER_VARIABLES, VARIABLES

from docs import reference_pages as reference
from infra.config import Config


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_of_the_reference_is_made_from_the_code(name: str) -> None:
    assert (reference.FOLDER / name).read_text() == reference.PAGES[name](), "run: python -m docs.reference_pages"


def rows_of(page: str) -> list[str]:
    return re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE)


def documented_settings() -> list[str]:
    return rows_of(reference.settings_page())


def test_every_key_of_cdk_json_has_one_row() -> None:
    rows = rows_of(reference.deployment_page())
    assert len(rows) == len(set(rows))
    assert {name.partition(".")[0] for name in rows} == set(Config.names())


def test_every_setting_has_one_row() -> None:
    names = documented_settings()
    grouped = {name for name in names if name.startswith(tuple(GROUPS.values()))}
    assert len(names) == len(set(names))
    assert set(names) - grouped == VARIABLES.keys() | OTHER_VARIABLES


@pytest.mark.parametrize(
    ("module", "prefix"), [("docker", "MOORAGE_DOCKER_"), ("fargate", "MOORAGE_FARGATE_"), ("lambda_microvm", "MOORAGE_MICROVM_")]
)
def test_every_setting_of_a_place_of_sandboxes_has_a_row(module: str, prefix: str) -> None:
    """They are read by their end, such as ``values["cluster"]``; a memory tier stands for all tiers."""
    tree = ast.parse((reference.CORE / "sandbox" / f"{module}.py").read_text())
    (reader,) = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "from_settings")
    read = set(re.findall(r"""values(?:\.get\(|\[)f?['"](\w+)['"]""", ast.unparse(reader)))
    read |= {"socket", *(field.name for field in fields(MachineBounds))} if module == "docker" else set()
    documented = {name.removeprefix(prefix).lower() for name in documented_settings() if name.startswith(prefix)}
    assert {name for name in documented if not name.endswith("_1g")} == read


def test_the_codes_of_errors_are_found_with_their_words() -> None:
    errors = reference.errors()
    assert ("previous_response_not_found", "400", "Previous response with id '…' not found.") in errors
    assert ("context_length_exceeded", "ends the response") in {(code, status) for code, status, _ in errors}
    assert len({code for code, _, _ in errors}) > 60
