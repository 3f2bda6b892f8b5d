"""checkov and cfn-lint find nothing in the templates but what their configurations let stand with a reason."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.infra.conftest import BOTH, MICROVM_VPC, MICROVMS, NAMED, PRIVATE, ROOT, Stacks, shared
from tests.infra.updates import CREATED_ONLY

TOOLS = ROOT / ".venv-template" / "bin"
CHECKOV = ["checkov", "--config-file", str(ROOT / "infra" / "checkov.yaml")]
CFN_LINT = ["cfn-lint", "--config-file", str(ROOT / "infra" / "cfn-lint.yaml")]


@pytest.fixture(scope="module")
def microvms(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    return shared({"rollout": "linear", **MICROVMS}, tmp_path_factory)


@pytest.fixture(scope="module")
def microvms_let_out(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    """MicroVMs whose containers may have a network policy."""
    return shared({**MICROVMS, "allowed_egress_domains": ["pkg.example.com"]}, tmp_path_factory)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    return shared(BOTH, tmp_path_factory)


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    """What is reached from an owner's network alone, and is in it."""
    return shared({**MICROVMS, "vpc": MICROVM_VPC, **PRIVATE, **NAMED}, tmp_path_factory)


@pytest.fixture(scope="module")
def templates(
    stacks: Stacks,
    everything: Stacks,
    company: Stacks,
    microvms: Stacks,
    microvms_let_out: Stacks,
    both: Stacks,
    inside: Stacks,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A folder with both templates of the default deployment, of the one with every option, of a company's, and of four with MicroVMs.

    cfn-lint knows both kinds of resources that MicroVMs bring, by CloudFormation's schemas of October 2026, in both regions.
    """
    folder = tmp_path_factory.mktemp("templates")
    for name, found in {
        "default": stacks,
        "everything": everything,
        "company": company,
        "microvms": microvms,
        "microvms-let-out": microvms_let_out,
        "both": both,
        "inside": inside,
    }.items():
        (folder / f"{name}-state.json").write_text(json.dumps(found.state))
        (folder / f"{name}-service.json").write_text(json.dumps(found.service))
    return folder


def run(command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    if shutil.which(command[0], path=TOOLS) is None:
        pytest.skip(f"{command[0]} is not installed: 'make lint-template' installs it.")
    return subprocess.run([str(TOOLS / command[0]), *command[1:]], cwd=folder, capture_output=True, text=True, check=False, timeout=380)


def test_checkov_finds_nothing(templates: Path) -> None:
    done = run([*CHECKOV, "--directory", str(templates), "--output", "json"], templates)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    summary = json.loads(done.stdout)["summary"]
    assert (summary["failed"], summary["parsing_errors"]) == (0, 0)
    assert summary["passed"] > 500


def test_cfn_lint_finds_nothing(templates: Path) -> None:
    done = run([*CFN_LINT, *map(str, sorted(templates.iterdir()))], templates)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout[-8000:] + done.stderr[-2000:]


def test_what_is_made_anew_is_recorded_from_cloudformations_schemas(
    stacks: Stacks, everything: Stacks, microvms: Stacks, inside: Stacks
) -> None:
    """cfn-lint has a copy of them: ``createOnlyProperties`` of every kind of resource."""
    (schemas,) = TOOLS.parent.glob("lib/python3*/site-packages/cfnlint/data/schemas") if TOOLS.exists() else [None]
    if schemas is None:
        pytest.skip("cfn-lint is not installed: 'make lint-template' installs it.")
    files = json.loads((schemas / "providers" / "us-east-1.json").read_text())
    for kind, recorded in CREATED_ONLY.items():
        schema = json.loads((schemas / "resources" / f"{files[kind]}.json").read_text())
        assert recorded == sorted(path.removeprefix("/properties/") for path in schema.get("createOnlyProperties", [])), kind
    used = {each["Type"] for of in (stacks, everything, microvms, inside) for each in of.resources.values()}
    assert {kind for kind in used if not kind.startswith("Custom::")} - CREATED_ONLY.keys() == set()


def test_every_rule_that_is_left_out_has_its_reason_above_it() -> None:
    for file in (ROOT / "infra" / "checkov.yaml", ROOT / "infra" / "cfn-lint.yaml"):
        lines = file.read_text().splitlines()
        rules = [number for number, line in enumerate(lines) if re.fullmatch(r"  - \w+", line)]
        assert rules
        assert all(lines[number - 1].startswith("  # ") for number in rules)
