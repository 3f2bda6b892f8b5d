"""What CodeBuild runs to build an image, with a registry and a Docker that do as they are told."""

import os
import subprocess
from pathlib import Path

import pytest

from infra.images import BUILD_SCRIPT

PINNED, BY_NAME = "registry.example/python:3.13@sha256:0f", "registry.example/python:3.13"
LOGIN = "login --username AWS --password-stdin registry.example"
DOCKER = """#!/bin/sh
echo "$@" >> calls
[ "$1" = pull ] || exit 0
answer=$(head -n 1 answers)
sed -i 1d answers
[ -z "$answer" ] || { echo "Error response from daemon: $answer" >&2; exit 1; }
"""


def built(folder: Path, *answers: str) -> tuple[int, list[str], str]:
    """Run the script where pulls are answered like this, "" being well: its exit code, what Docker was asked for, and the log."""
    (folder / "build.sh").write_text(BUILD_SCRIPT)
    (folder / "answers").write_text("".join(f"{answer}\n" for answer in answers))
    programs = folder / "bin"
    programs.mkdir()
    for name, text in (("docker", DOCKER), ("aws", "#!/bin/sh\necho password\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    told = {"BASE_IMAGE": PINNED, "BASE_IMAGE_BY_NAME": BY_NAME, "REPOSITORY": "own", "IMAGE_TAG": "1", "ARGUMENTS": "", "PAUSE": "0"}
    path = f"{programs}:{os.environ['PATH']}"
    done = subprocess.run(["sh", "build.sh"], cwd=folder, env={**told, "PATH": path}, capture_output=True, text=True, check=False)
    return done.returncode, (folder / "calls").read_text().splitlines(), done.stdout


def build_of(base: str) -> str:
    return f"build --build-arg BASE_IMAGE={base} --tag own:1 ."


@pytest.mark.parametrize(
    "answers",
    [("",), ("toomanyrequests: Rate exceeded", ""), ("net/http: TLS handshake timeout", "unexpected EOF", "")],
    ids=["at once", "after one pull too many", "after a bad minute"],
)
def test_an_image_is_built_from_the_pinned_base(answers: tuple[str, ...], tmp_path: Path) -> None:
    code, calls, _ = built(tmp_path, *answers)
    assert (code, calls) == (0, [LOGIN, *[f"pull {PINNED}"] * len(answers), build_of(PINNED)])


def test_a_base_that_cannot_be_had_fails_the_build_and_is_not_replaced(tmp_path: Path) -> None:
    code, calls, _ = built(tmp_path, *["toomanyrequests: Rate exceeded"] * 3)
    assert (code, calls) == (1, [LOGIN, *[f"pull {PINNED}"] * 3])


def test_an_unknown_base_image_is_taken_by_its_name_and_the_log_says_so(tmp_path: Path) -> None:
    code, calls, log = built(tmp_path, f"manifest for {PINNED} not found: manifest unknown: Requested image not found")
    assert (code, calls) == (0, [LOGIN, f"pull {PINNED}", build_of(BY_NAME)])
    assert f"The registry has no {PINNED}; building from {BY_NAME} instead." in log
