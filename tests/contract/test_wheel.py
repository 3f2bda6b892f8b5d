"""What is carried away: the wheel holds all that one machine needs, and runs where there is no checkout."""

import email
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import uv

from tests.stack import ROOT, clean_environment

pytestmark = pytest.mark.timeout(1800)
"""The first tests install packages: on a busy machine that takes minutes for each."""
UV = uv.find_uv_bin()
_SECONDS_MAX = 800
CARRIED = (
    *("functions/egress_proxy", "functions/sandbox"),
    *("models.toml", "requirements/egress.txt", "requirements/toolbox.txt"),
)

RELEASED = {"GITHUB_SERVER_URL": "https://example.com", "GITHUB_REPOSITORY": "o/n", "GITHUB_REF_NAME": "v1"}
"""The environment of a release's workflow."""


def lines(name: str) -> list[str]:
    """The requirements of ``requirements/<name>.in`` itself, without comments and references."""
    return [line for line in (ROOT / "requirements" / f"{name}.in").read_text().splitlines() if not line.startswith(("#", "-"))]


def test_the_package_asks_for_what_the_locks_are_made_from() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert declared == sorted({*lines("runtime"), *lines("local"), *lines("uv")})


@dataclass(frozen=True)
class Installed:
    wheel: Path
    bin: Path
    home: Path
    """An empty folder, and the user's."""

    def run(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """A command as someone types it who has nothing but the wheel."""
        with self.start(*arguments, **environment) as process:
            try:
                out, errors = process.communicate(timeout=_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.terminate()
                raise AssertionError(process.communicate()) from None
        return subprocess.CompletedProcess(arguments, process.returncode, out, errors)

    def start(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        kept = {key: value for key, value in clean_environment().items() if not key.startswith(("PYTHON", "VIRTUAL_ENV", "XDG_"))}
        return subprocess.Popen(
            [str(self.bin / arguments[0]), *arguments[1:]],
            cwd=self.home,
            env=kept | {"HOME": str(self.home), "UV_CACHE_DIR": uv_cache(), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def uv_cache() -> str:
    """Where uv keeps what it has downloaded for the checkout's own environments."""
    return subprocess.run([UV, "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Built, and installed with the dependencies that it declares, at the locked versions."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [UV, "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, timeout=_SECONDS_MAX, env=os.environ | RELEASED)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    install = [UV, "pip", "install", "--quiet", "--python", str(python), "--constraint", str(ROOT / "requirements" / "local.txt")]
    subprocess.run([*install, str(wheel)], check=True, timeout=_SECONDS_MAX)
    home = folder / "home"
    home.mkdir()
    return Installed(wheel, python.parent, home)


def test_it_carries_what_is_no_module_and_nothing_else(installed: Installed) -> None:
    listed = subprocess.run(["git", "ls-files", *CARRIED], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    with zipfile.ZipFile(installed.wheel) as wheel:
        inside = [name.removeprefix("moorage/carried/") for name in wheel.namelist() if name.startswith("moorage/carried/")]
    assert sorted(inside) == sorted(listed)


def test_it_carries_the_console_with_the_libraries_that_were_fetched_for_it(installed: Installed) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "layers/core/python/moorage/console"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    with zipfile.ZipFile(installed.wheel) as wheel:
        inside = {name for name in wheel.namelist() if name.startswith("moorage/console/")}
        libraries = {name for name in inside if name.startswith("moorage/console/vendor/")}
        imported = {word for name in libraries for word in re.findall(r'from"(?!\./)([^"]+)"', wheel.read(name).decode())}
    assert inside - libraries == {name.removeprefix("layers/core/python/") for name in listed}
    names = ("LICENSES.txt", "hooks.js", "htm.js", "marked.js", "preact.js", "signals-core.js", "signals.js", "xterm.css", "xterm.js")
    assert libraries == {f"moorage/console/vendor/{name}" for name in names}
    assert imported == set()


def test_it_says_what_it_is(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        said = email.message_from_bytes(wheel.read(name))
    assert (said["Name"], said["Requires-Python"], said["License-Expression"]) == ("moorage", ">=3.11", "Apache-2.0")
    assert "Documentation, https://example.com/o/n/blob/v1/docs/index.md" in said.get_all("Project-URL", [])


def test_no_link_of_its_readme_is_relative(installed: Installed) -> None:
    """A package index shows it outside of the repository."""
    with zipfile.ZipFile(installed.wheel) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        links = re.findall(r"\]\(([^)\s]+)\)", wheel.read(name).decode())
    assert "https://example.com/o/n/raw/v1/docs/console/run-light.png" in links
    assert [link for link in links if not link.startswith("https://")] == []


def test_nothing_of_the_checkout_is_on_its_path(installed: Installed) -> None:
    done = installed.run("python", "-c", "import sys, moorage.local.resource_paths as p; print(p.ROOT, *sys.path, sep='\\n')")
    assert done.stdout.startswith(str(installed.bin.parent))
    assert str(ROOT) + os.sep not in done.stdout.replace(str(installed.bin.parent), "")


def test_the_command_speaks(installed: Installed) -> None:
    done = installed.run("moorage", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.findall(r"^    (\w+)", done.stdout, re.MULTILINE)[:2] == ["up", "demo"]


@pytest.fixture(scope="module")
def demonstrated(installed: Installed) -> "subprocess.CompletedProcess[str]":
    return installed.run("moorage", "demo")


def test_the_demonstration_runs_and_makes_its_toolbox_in_the_users_cache(
    installed: Installed, demonstrated: "subprocess.CompletedProcess[str]"
) -> None:
    assert demonstrated.returncode == 0, demonstrated.stdout + demonstrated.stderr
    assert "moorage: Installing the packages that sandboxes offer into " in demonstrated.stderr
    assert sorted(path.name for path in installed.home.iterdir()) == [".cache", "chart.png", "report.xlsx"]
    kept = sorted((installed.home / ".cache" / "moorage").iterdir())
    assert [(path.name.partition("-")[0], path.suffix) for path in kept] == [("start", ""), ("toolbox", ""), ("toolbox", ".lock")]


def test_the_doctor_names_what_it_finds_without_a_stack(installed: Installed) -> None:
    """The folder of its state is named: it would be looked for in the folders above as well."""
    done = installed.run("moorage", "doctor", MOORAGE_PORT="0", MOORAGE_STATE_DIR=".moorage")
    assert "ok    bubblewrap makes sandboxes here" in done.stdout, done
    assert "no deployment to ask" in done.stdout, done


def test_the_stack_serves_with_egress_state_and_toolbox(installed: Installed, demonstrated: "subprocess.CompletedProcess[str]") -> None:
    with installed.start("moorage", "up", "--port", "0", MOORAGE_ALLOWED_EGRESS_DOMAINS="example.com") as stack:
        try:
            assert stack.stdout is not None
            first = stack.stdout.readline()
            checked = installed.run("moorage", "doctor", MOORAGE_PORT="0")
        finally:
            stack.terminate()
            code, (_, errors) = stack.wait(_SECONDS_MAX), stack.communicate()
    assert (demonstrated.returncode, code, first) == (0, 0, "moorage is up.\n"), errors
    assert re.findall(r"Installing the packages (.+) into ", errors) == ["of the egress proxy"], "the toolbox was there"
    assert checked.returncode == 0, checked.stdout
    assert "a sandbox started, ran a command and answered" in checked.stdout
    assert "https://example.com/o/n/blob/v1/docs/models.md says how a real one is named." in checked.stdout
    assert '"egress_ready"' in (installed.home / ".moorage" / "egress.log").read_text()
    assert {path.name.partition("-")[0] for path in (installed.home / ".cache" / "moorage").iterdir()} == {"egress", "start", "toolbox"}
