"""What a Dockerfile asks of its base and of its context is there: an image that cannot be built ends a whole deployment.

``make test-docker`` builds them; these are the cheap looks, before each change of their inputs.
"""

import fnmatch
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.bundling import copy_context
from infra.stacks import PROXY_CONTEXT

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILES = [ROOT / "docker" / "Dockerfile", *sorted((ROOT / "functions").rglob("Dockerfile*"))]

USERS = "root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats _apt nobody"
GROUPS = (
    "root daemon bin sys adm tty disk lp mail news uucp man proxy kmem dialout fax voice cdrom floppy tape sudo audio dip www-data "
    "backup operator list irc src gnats shadow utmp video sasl plugdev staff games users nogroup"
)
"""Of every Debian: ``passwd.master`` and ``group.master`` of its package base-passwd, which is essential; ``_apt`` is apt's."""

_WITH_VALUE = re.compile(r"-[ugdsGcefkKMpPRZb]|--(uid|gid|home|home-dir|shell|groups|comment|gecos|base-dir|ingroup|firstuid|firstgid)")
_SEPARATORS = {"&&", "||", ";", "|", "{", "}"}


def commands(text: str) -> Iterator[list[str]]:
    """The shell commands of all RUN instructions, in words."""
    joined = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    for line in joined.splitlines():
        if not line.upper().startswith("RUN "):
            continue
        words: list[str] = []
        for word in [*shlex.split(line[4:]), ";"]:
            if word in _SEPARATORS or word.endswith(";"):
                yield [*words, *filter(None, [word.rstrip(";") if word.endswith(";") else ""])]
                words = []
            else:
                words.append(word)


def taken(text: str) -> list[str]:
    """What a Dockerfile makes although Debian has it. A user without a group of its own named gets one that is called as itself."""
    found = []
    for program, *words in filter(None, commands(text)):
        if program not in ("useradd", "adduser", "groupadd", "addgroup"):
            continue
        name = next(
            word
            for place, word in enumerate(words)
            if not word.startswith("-") and not (place and _WITH_VALUE.fullmatch(words[place - 1]))
        )
        makes_user = program in ("useradd", "adduser")
        makes_group = not makes_user or not {"-g", "--gid", "-N", "--no-user-group", "--ingroup"} & set(words)
        if (makes_user and name in USERS.split()) or (makes_group and name in GROUPS.split()):
            found.append(f"{program} {name}")
    return found


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parent.name)
def test_a_dockerfile_makes_no_user_that_debian_has(dockerfile: Path) -> None:
    assert taken(dockerfile.read_text()) == []


def test_dockerfiles_that_make_users_are_read() -> None:
    made = [words[-1] for path in DOCKERFILES for words in commands(path.read_text()) if words and words[0] == "useradd"]
    assert sorted(made) == ["egress", "moorage", "user"]


@pytest.mark.parametrize(
    ("run", "found"),
    [
        ("pip install x \\\n    && useradd --system --uid 10001 --no-create-home proxy", ["useradd proxy"]),
        ("groupadd --gid 1000 staff && useradd -g staff someone", ["groupadd staff"]),
        ("useradd users", ["useradd users"]),
        ("useradd --gid 100 users", []),
        ("set -e; adduser --disabled-password --gecos '' games; true", ["adduser games"]),
        ("useradd --uid 10001 egress", []),
    ],
)
def test_a_user_of_debians_would_have_been_found(run: str, found: list[str]) -> None:
    assert taken(f"FROM debian\nRUN {run}\n") == found


def sources(dockerfile: Path) -> list[str]:
    """What its COPY instructions take from the context."""
    text = dockerfile.read_text().replace("\\\n", " ")
    return [word for line in text.splitlines() if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]]


def test_the_context_of_a_deployments_images_holds_whatever_they_copy(tmp_path: Path) -> None:
    copy_context(PROXY_CONTEXT, tmp_path)
    contexts = {"egress_proxy": tmp_path, "sandbox": ROOT / "functions" / "sandbox"}
    files = [(name, file) for name in contexts for file in (ROOT / "functions" / name).glob("Dockerfile*")]
    copied = [(name, sources(file)) for name, file in files]
    assert len(copied) == 3
    assert all(named for _, named in copied)
    assert [source for name, named in copied for source in named if not (contexts[name] / source).exists()] == []


def test_images_without_a_computer_have_no_browser() -> None:
    """They keep their size."""
    folder = ROOT / "functions" / "sandbox"
    has_one = {name: "chromium" in (folder / "packages" / f"{name}.txt").read_text().split() for name in ("slim", "full", "desk")}
    assert has_one == {"slim": False, "full": False, "desk": True}
    lists = {file.name: re.findall(r"(?<![\w.])(slim|full|desk)\.txt", file.read_text()) for file in folder.glob("Dockerfile*")}
    assert lists == {"Dockerfile": ["slim", "slim", "full"], "Dockerfile.desk": ["desk"]}


@pytest.mark.skipif(shutil.which("apt-cache") is None, reason="the index of Debian's packages is asked by apt-cache")
def test_the_packages_of_the_sandboxes_image_are_in_the_release_of_its_base() -> None:
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    if f"slim-{release}\n" not in (ROOT / "functions" / "sandbox" / "Dockerfile").read_text():
        pytest.skip("this machine has the packages of another release")
    lists = ROOT / "functions" / "sandbox" / "packages"
    wanted = [line for name in ("slim", "full", "desk") for line in (lists / f"{name}.txt").read_text().split()]
    known = packages([line.partition("=")[0] for line in wanted])
    if not known:
        pytest.skip("this machine has no index of packages (apt-get update)")
    pins = [(name, version or "*") for name, _, version in (line.partition("=") for line in wanted)]
    assert [name for name, pin in pins if not any(fnmatch.fnmatch(version, pin) for version in known.get(name, []))] == []


def packages(names: list[str]) -> dict[str, list[str]]:
    """The versions of each package that can be had."""
    said = subprocess.run(["apt-cache", "madison", *names], capture_output=True, text=True, check=True).stdout
    known: dict[str, list[str]] = {}
    for line in said.splitlines():
        name, version, _ = (part.strip() for part in line.split("|", 2))
        known.setdefault(name, []).append(version)
    return known
