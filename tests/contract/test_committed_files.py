"""What no file of the repository may have.

The host of a package registry: which registry serves the packages is the user's configuration. The marks of a merge: linters see these
in Python alone.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Domain and top-level domain apart, so that this file names none either.
DOMAINS = {
    "org": "pypi pythonhosted npmjs rubygems packagist crates maven anaconda cpan golang cran r-project",
    "com": "npmjs yarnpkg maven anaconda pypi",
    "net": "jsdelivr esm",
    "io": "crates",
    "dev": "hackage",
}
_HOST = re.compile("|".join(rf"\b(?:{'|'.join(names.split())})\.{end}\b" for end, names in DOMAINS.items()), re.IGNORECASE)


def names_registry(line: str) -> bool:
    return _HOST.search(line) is not None


@pytest.mark.parametrize("prefix", ["", "https://", "files.", "registry.", "index-url = https://user@"])
def test_a_registrys_host_is_known_however_it_is_written(prefix: str) -> None:
    for end, names in DOMAINS.items():
        assert all(names_registry(f"{prefix}{name.upper()}.{end}/simple") for name in names.split())


def lines() -> Iterator[tuple[str, str]]:
    """Each line of the committed files, with its place."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    texts = {name: (ROOT / name).read_bytes().decode(errors="replace") for name in listed if (ROOT / name).is_file()}
    assert len(texts) > 500
    for name, text in texts.items():
        yield from ((f"{name}:{number}", line) for number, line in enumerate(text.splitlines(), 1))


def test_no_file_names_the_host_of_a_package_registry() -> None:
    assert [place for place, line in lines() if names_registry(line)] == []


def test_no_file_has_the_marks_of_a_merge() -> None:
    marks = ("<" * 7 + " ", ">" * 7 + " ")
    assert [place for place, line in lines() if line.startswith(marks)] == []
