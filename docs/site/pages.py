"""Make the documentation's site from the Markdown: ``make docs``.

``docs/index.md`` is the table of contents: its headings are the doors, and its list items the pages. Sphinx with MyST makes the HTML,
Furo is its theme; neither needs a host for scripts, fonts or search. Beside the HTML lie each page's Markdown, ``llms.txt`` (the table
of contents, as https://llmstxt.org describes it) and ``llms-full.txt`` (all pages in one file).

A page keeps its place under ``docs/``. Links to sources lead to the repository that ``GITHUB_REPOSITORY`` names, as in GitHub's
workflows. Without it only their words stay.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
SOURCE: Final = ROOT / ".build" / "site-source"
SITE: Final = ROOT / ".build" / "site"

OUTSIDE: Final = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples.md",
    "functions/sandbox/README.md": "sandbox-image.md",
    "localstack/README.md": "localstack.md",
}
"""Pages of the site that lie elsewhere in the repository, and their places in the site."""

_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_ENTRY: Final = re.compile(r"^- \[([^\]]+)\]\(([^)]+)\): (.+)$", re.MULTILINE)


def places(root: Path = ROOT) -> dict[Path, str]:
    """Each page's file, and its place in the site."""
    inside = {path: str(path.relative_to(root / "docs")) for path in sorted((root / "docs").rglob("*.md"))}
    named = {path: re.sub(r"README\.md$", "index.md", place) for path, place in inside.items()}
    return named | {root / name: place for name, place in OUTSIDE.items()}


def doors(root: Path = ROOT) -> dict[str, list[tuple[str, str, str]]]:
    """The table of contents: by heading of ``docs/index.md``, each page's title, place and description."""
    home, where = root / "docs" / "index.md", places(root)
    parts = re.split(r"^## (.+)\n", home.read_text(), flags=re.MULTILINE)[1:]
    return {
        heading: [(title, where[(home.parent / target).resolve()], about) for title, target, about in _ENTRY.findall(text)]
        for heading, text in zip(parts[::2], parts[1::2], strict=True)
    }


def source_address(environ: Mapping[str, str]) -> str | None:
    """Where the sources can be read, as GitHub's workflows name it."""
    if not (repository := environ.get("GITHUB_REPOSITORY")):
        return None
    return f"{environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{repository}/blob/{environ.get('GITHUB_REF_NAME', 'main')}"


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """The page with ``change`` applied to all that stands outside of code blocks."""
    return "".join(part if part.startswith("```") else change(part) for part in re.split(r"(^```.*?^```$)", text, flags=re.M | re.S))


def rewritten(page: Path, sources: str | None, root: Path = ROOT) -> str:
    """The page's Markdown for its place in the site."""
    where = places(root)
    here = Path(where[page]).parent

    def link(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        path, _, heading = target.partition("#")
        if "://" in target or target.startswith("mailto:") or not path:
            return found[0]
        file = (page.parent / path).resolve()
        if place := where.get(file) or (str(file.relative_to(root / "docs")) if mark else None):
            return f"{mark}[{words}]({os.path.relpath(place, here)}{'#' * bool(heading)}{heading})"
        return f"[{words}]({sources}/{file.relative_to(root)})" if sources else words

    # Sphinx knows no Mermaid without a script of another host; the text of a drawing can be read too.
    return outside_code(page.read_text(), lambda text: _LINK.sub(link, text)).replace("```mermaid\n", "```text\n")


def _toctree(pages: list[str], caption: str = "") -> str:
    option = f":caption: {caption}\n" if caption else ""
    return "\n".join([f"\n```{{toctree}}\n:hidden:\n{option}", *(page.replace(".md", "") for page in pages), "```", ""])


def stage(folder: Path, root: Path = ROOT) -> None:
    """Put Sphinx's input there: the pages with their links rewritten, the pictures, and the table of contents."""
    shutil.rmtree(folder, ignore_errors=True)
    sources = source_address(os.environ)
    for page, place in places(root).items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(rewritten(page, sources, root))
    for picture in [*(root / "docs").rglob("*.png"), *(root / "docs").rglob("*.svg")]:
        target = folder / picture.relative_to(root / "docs")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, target)
    with (folder / "index.md").open("a") as home:
        home.writelines(_toctree([f"{title} <{place}>" for title, place, _ in pages], door) for door, pages in doors(root).items())
    decisions = sorted(f"{page.stem}" for page in (root / "docs" / "decisions").glob("[0-9]*.md"))
    with (folder / "decisions" / "index.md").open("a") as index:
        index.write(_toctree(decisions))


def write_for_models(source: Path, site: Path, root: Path = ROOT) -> None:
    """Each page's Markdown, ``llms.txt`` and ``llms-full.txt``, for readers that are programs."""
    for page in source.rglob("*.md"):
        target = site / page.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, target)
    summary = (root / "docs" / "index.md").read_text().split("\n\n")[1].replace("\n", " ")
    lines = ["# moorage", "", f"> {summary}"]
    for door, pages in doors(root).items():
        lines += ["", f"## {door}", "", *(f"- [{title}]({place}): {about}" for title, place, about in pages)]
    (site / "llms.txt").write_text("\n".join(lines) + "\n")
    listed = [place for pages in doors(root).values() for _, place, _ in pages]
    (site / "llms-full.txt").write_text("\n\n".join((source / place).read_text().strip() for place in listed) + "\n")


class _Addresses(HTMLParser):
    """The links, the ids and the loaded files of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        if tag in ("script", "img", "link", "iframe", "source"):
            self.loaded |= {values[name] for name in ("src", "href") if name in values}


def faults(site: Path) -> list[str]:
    """Links of the built site that lead nowhere, and files that it would load from another host."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = _Addresses()
        pages[path].feed(path.read_text())
    found = []
    for path, page in pages.items():
        for target in sorted(page.links | page.loaded):
            if re.match(r"[a-z]+:|//", target):
                if target in page.loaded and not target.startswith("data:"):
                    found.append(f"{path.relative_to(site)} loads {target}")
                continue
            name, _, heading = target.partition("#")
            file = (path.parent / unquote(name.partition("?")[0])).resolve() if name else path
            if not file.is_file() or (heading and file in pages and unquote(heading) not in pages[file].ids):
                found.append(f"{path.relative_to(site)} links {target}")
    for style in sorted(site.rglob("*.css")):
        foreign = re.findall(r"url\([\"']?((?:https?:)?//[^\"')]+)", style.read_text())
        found += [f"{style.relative_to(site)} loads {url}" for url in foreign]
    return found


def main() -> int:
    """Build the site; 1 if Sphinx warns or a link leads nowhere."""
    stage(SOURCE)
    shutil.rmtree(SITE, ignore_errors=True)
    sphinx = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--conf-dir", str(DOCS / "site")]
    doctrees = ROOT / ".build" / "site-doctrees"
    if code := subprocess.run([*sphinx, "--fresh-env", "--doctree-dir", str(doctrees), str(SOURCE), str(SITE)], check=False).returncode:
        return code
    write_for_models(SOURCE, SITE)
    if found := faults(SITE):
        print(*found, sep="\n", file=sys.stderr)  # noqa: T201
        return 1
    print(f"{SITE.relative_to(ROOT)}/index.html")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
