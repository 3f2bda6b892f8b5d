"""The image of all of moorage, without an engine: what it is built from and how it is run. ``make test-docker`` builds and runs it."""

import fnmatch
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from moorage.settings import unknown_variables

ROOT = Path(__file__).resolve().parents[3]
PROFILE = (ROOT / "docker" / "seccomp.json").read_text()
DEFAULT_SHA256 = "536529b665dd0972c37bfb569f5d4ac8a53592e7b00752bc39ff063ca9864c74"
"""Of ``seccomp/default.json`` in moby/profiles at the tag ``seccomp/v0.2.3``: the table of the engine's own."""
NAMESPACE_CALLS = ["chroot", "clone", "mount", "pivot_root", "sethostname", "setns", "umount2", "unshare"]


def test_the_seccomp_profile_is_the_engines_own_and_the_calls_for_namespaces() -> None:
    rules = json.loads(PROFILE)["syscalls"]
    assert (rules[-1]["names"], rules[-1]["action"]) == (NAMESPACE_CALLS, "SCMP_ACT_ALLOW")
    default = PROFILE[: PROFILE.rindex(",\n\t\t{")] + "\n\t]\n}"
    assert hashlib.sha256(default.encode()).hexdigest() == DEFAULT_SHA256


@pytest.fixture(scope="module")
def service() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["moorage"]
    return found


def test_compose_publishes_the_address_that_the_stack_names(service: dict[str, Any]) -> None:
    address = "127.0.0.1:${MOORAGE_PORT:-8080}"
    assert (service["ports"], service["environment"]["MOORAGE_PUBLISHED"]) == ([f"{address}:${{MOORAGE_PORT:-8080}}"], address)
    assert unknown_variables(service["environment"]) == []


def test_every_way_to_run_the_image_says_the_same_of_its_walls(service: dict[str, Any]) -> None:
    devcontainer = re.sub(r"^\s*//.*$", "", (ROOT / ".devcontainer" / "devcontainer.json").read_text(), flags=re.MULTILINE)
    in_editor = [each.removeprefix("--security-opt=") for each in json.loads(devcontainer)["runArgs"]]
    walls = ["seccomp=docker/seccomp.json", "systempaths=unconfined", "apparmor=unconfined"]
    assert [each.replace("${localWorkspaceFolder}/", "") for each in in_editor] == walls
    assert service["security_opt"] == [*walls, "no-new-privileges=true"]
    page = (ROOT / "docs" / "docker.md").read_text()
    assert re.findall(r"--security-opt ([\w./=-]+)", page) == [*walls, "no-new-privileges"]


def test_the_context_holds_whatever_the_image_copies() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    allowed, left_out = {rule[1:] for rule in rules if rule.startswith("!")}, [rule for rule in rules if not rule.startswith("!")]
    assert left_out[0] == "*"
    copied = [
        source
        for line in (ROOT / "docker" / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
        if source != "."
    ]
    missing = [each for each in copied if not (ROOT / each).exists() or each.partition("/")[0] not in allowed]
    assert (missing, [each for each in copied if any(fnmatch.fnmatch(each, rule) for rule in left_out[1:])]) == ([], [])


def test_the_context_holds_whatever_the_wheel_is_built_from() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    carried = re.findall(r'^"([^"]+)" = "moorage/carried/', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert {each.partition("/")[0] for each in carried} | {"layers", "console", "README.md", "LICENSE", "hatch_build.py"} <= allowed
