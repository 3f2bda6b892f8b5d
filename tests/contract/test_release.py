"""What a release is made by: workflows that call the project's own make targets, and checks before a commit."""

import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from moorage import __version__

from tests.contract.test_wheel import RELEASED
from tests.stack import ROOT

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


def workflow(path: Path) -> dict[Any, Any]:
    """YAML takes the key ``on`` for true."""
    read: dict[Any, Any] = yaml.safe_load(path.read_text())
    return read


def commands(path: Path) -> list[str]:
    jobs = workflow(path)["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_make_targets_that_there_are(path: Path) -> None:
    filled = [re.sub(r"\$\{\{[^}]*\}\}", "x", command) for command in commands(path)]
    made = [command for command in filled if command.startswith("make ")]
    assert made
    for command in made:
        dry = subprocess.run([*command.split(), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)
        assert dry.returncode == 0, f"{command}: {dry.stderr}"
    assert [command for command in filled if not command.startswith(("make ", "docker ", "sudo "))] == []


def test_the_suite_runs_once_where_an_ordinary_user_may_not_read() -> None:
    steps = workflow(ROOT / ".github" / "workflows" / "test.yml")["jobs"]["private"]["steps"]
    *_, closed, suite = [step["run"] for step in steps if "run" in step]
    assert closed == "sudo chmod 0700 /root /root/moorage"
    assert suite.startswith("sudo ")
    assert suite.endswith(" make -C /root/moorage test")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_only_read_where_no_job_says_more(path: Path) -> None:
    read = workflow(path)
    assert read["permissions"] == {"contents": "read"}
    writers = {name for name, job in read["jobs"].items() if "write" in job.get("permissions", {}).values()}
    assert writers <= {"publish", "packages", "images"}


def test_a_release_publishes_what_was_checked_on_a_tag_alone() -> None:
    read = workflow(GITHUB / "workflows" / "release.yml")
    assert read[True] == {"push": {"tags": ["v*"]}}
    assert [step["run"] for step in read["jobs"]["dist"]["steps"] if "run" in step] == [
        "make release-check TAG=${{ github.ref_name }}",
        "make dist",
    ]
    assert {name: job.get("needs") for name, job in read["jobs"].items()} == {"dist": None, "packages": "dist", "images": "dist"}


@pytest.mark.parametrize("tag", ["", "0.1.0", "v9.9.9"])
def test_a_tag_of_another_version_is_no_release(tag: str) -> None:
    checked = subprocess.run(["make", "-s", "release-check", f"TAG={tag}"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode != 0
    assert f"The tag is '{tag}', and the version is " in checked.stdout


def test_the_tag_of_this_version_is_a_release_with_notes() -> None:
    command = ["make", "-s", "release-check", f"TAG=v{__version__}"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")
    unreleased, released, *_ = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert (unreleased, released) == ("Unreleased", __version__)


def test_a_release_builds_packages_that_an_index_takes(tmp_path: Path) -> None:
    """What the job ``dist`` of a release does, in its environment."""
    folder = tmp_path / "dist"
    command = ["make", "-s", "dist", f"DIST={folder}"]
    made = subprocess.run(command, cwd=ROOT, env=os.environ | RELEASED, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    names = {f"moorage-{__version__}-py3-none-any.whl", f"moorage-{__version__}.tar.gz"}
    assert {path.name for path in folder.iterdir() if path.name != ".gitignore"} == names
    assert re.findall("PASSED|FAILED|WARNING", made.stdout) == ["PASSED", "PASSED"]
    with tarfile.open(folder / f"moorage-{__version__}.tar.gz") as sources:
        about = sources.extractfile(f"moorage-{__version__}/PKG-INFO")
        assert about is not None
        links = re.findall(r"\]\(([^)\s]+)\)", about.read().decode())
    assert links
    assert [link for link in links if not link.startswith("https://")] == []


def test_every_form_and_update_is_yaml() -> None:
    forms = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml"))}
    assert set(forms) == {"bug", "config", "idea"}
    assert all({"name", "description", "body"} <= form.keys() for name, form in forms.items() if name != "config")
    updates = yaml.safe_load((GITHUB / "dependabot.yml").read_text())["updates"]
    folders = [folder for update in updates for folder in update.get("directories", [update.get("directory")])]
    assert [folder for folder in folders if not (ROOT / folder.strip("/")).is_dir()] == []


def test_hooks_before_a_commit_run_what_is_locked() -> None:
    hooks = [hook for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"] for hook in repo["hooks"]]
    assert {hook["language"] for hook in hooks} == {"system"}
    files = [word for hook in hooks for word in hook["entry"].split() if word.startswith("docs/")]
    assert [file for file in files if not (ROOT / file).is_file()] == []
