"""The documentation's site: its table of contents has every page, links are rewritten, and a broken site is noticed."""

import re
import subprocess
from pathlib import Path

import pytest

from docs.site import pages
from tests.stack import ROOT

PYTHON = ROOT / ".venv-docs" / "bin" / "python"


def test_the_table_of_contents_has_four_doors_and_every_page_once() -> None:
    doors = pages.doors()
    listed = sorted(place for entries in doors.values() for _, place, _ in entries)
    decisions = {place for place in pages.places().values() if re.match(r"decisions/\d", place)}
    assert list(doors) == ["Start", "Guides", "Reference", "Explanation"]
    assert listed == sorted(set(pages.places().values()) - decisions - {"index.md"})


def tree(root: Path, **files: str) -> Path:
    """A folder with pages of these texts; ``__`` in a name is a slash."""
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("markdown", "without", "within"),
    [
        ("[a](../b.md#x)", "[a](../b.md#x)", "[a](../b.md#x)"),
        ("[why](../decisions/README.md)", "[why](../decisions/index.md)", "[why](../decisions/index.md)"),
        ("[it](../../SECURITY.md)", "[it](../security.md)", "[it](../security.md)"),
        ("[`x.py`](../../layers/x.py)", "`x.py`", "[`x.py`](https://example.com/o/n/blob/v1/layers/x.py)"),
        ("[out](https://example.org) [here](#y)", "[out](https://example.org) [here](#y)", "[out](https://example.org) [here](#y)"),
        ("![p](../console/p.png)", "![p](../console/p.png)", "![p](../console/p.png)"),
        ("```\n[a](../../x.py)\n```\n", "```\n[a](../../x.py)\n```\n", "```\n[a](../../x.py)\n```\n"),
    ],
)
def test_links_lead_to_pages_of_the_site_or_to_the_repository(markdown: str, without: str, within: str, tmp_path: Path) -> None:
    root = tree(tmp_path, docs__b="", docs__decisions__README="", docs__guides__page=markdown)
    page = root / "docs" / "guides" / "page.md"
    environ = {"GITHUB_REPOSITORY": "o/n", "GITHUB_SERVER_URL": "https://example.com", "GITHUB_REF_NAME": "v1"}
    assert pages.source_address({}) is None
    assert pages.rewritten(page, None, root) == without
    assert pages.rewritten(page, pages.source_address(environ), root) == within


def test_a_link_that_leads_nowhere_and_a_foreign_script_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#there">1</a><a href="b.html#gone">2</a><a href="c.html">3</a><a href="https://example.com">4</a>'
        '<script src="https://example.com/x.js"></script>'
    )
    (tmp_path / "b.html").write_text('<p id="there">')
    (tmp_path / "s.css").write_text("@font-face {src: url('https://example.com/f.woff')}")
    assert pages.faults(tmp_path) == [
        "a.html links b.html#gone",
        "a.html links c.html",
        "a.html loads https://example.com/x.js",
        "s.css loads https://example.com/f.woff",
    ]


def test_models_get_the_table_of_contents_and_all_pages(tmp_path: Path) -> None:
    pages.stage(tmp_path / "source")
    pages.write_for_models(tmp_path / "source", tmp_path / "site")
    contents = (tmp_path / "site" / "llms.txt").read_text()
    assert contents.startswith("# moorage\n\n> A self-hosted OpenAI Responses API with a computer")
    linked = re.findall(r"^- \[[^]]+\]\(([^)]+)\): ", contents, re.MULTILINE)
    assert [name for name in linked if not (tmp_path / "site" / name).is_file()] == []
    assert len(linked) > 30
    assert "# Security" in (tmp_path / "site" / "llms-full.txt").read_text()


@pytest.mark.skipif(not PYTHON.exists(), reason="'make docs' makes the environment of the site")
def test_the_site_is_built_without_a_warning() -> None:
    built = subprocess.run([PYTHON, ROOT / "docs" / "site" / "pages.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr, built.stdout) == (0, "", ".build/site/index.html\n")
    assert (ROOT / ".build" / "site" / "searchindex.js").exists()
