"""Measure the English of the documentation: ``python docs/site/prose.py [PAGE ...]``; ``make lint`` runs it over all pages.

A page passes with a median sentence of at most 16 words, at most 1.0 relative and question words in 100 words, and at most 1.0 of
"nobody", "nothing" and "none" in 1,000. Code, tables and headings do not count. Any page may have three words of the first kind and
one of the second: on a short page a share says little. The docstrings of the product pass together, with bounds of their own.
"""

import ast
import re
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

SENTENCE_WORDS_MAX: Final = 16
RELATIVE_PER_100_MAX: Final = 1.0
NEGATED_PER_1000_MAX: Final = 1.0

DOCSTRINGS_RELATIVE_PER_100_MAX: Final = 1.2
"""A docstring names types and units in short clauses, so it may have a few more than a page."""

_RELATIVE: Final = frozenset(["what", "who", "whom", "whose", "which", "where", "whatever", "whoever", "whichever", "wherever"])
_NEGATED: Final = frozenset(("nobody", "nothing", "none"))
_CODE_BLOCK: Final = re.compile(r"^[ ]*```.*?^[ ]*```[ ]*$", re.MULTILINE | re.DOTALL)
_NO_PROSE: Final = re.compile(r"^(#|\||<|=|!\[|- `|\* `|- \[[^\]]*\]\([^)]*\):)")
_SENTENCE_WORDS_MIN: Final = 3


@dataclass(frozen=True)
class Prose:
    sentence_words: float
    """Of the median sentence."""
    relative: float
    """Relative and question words in 100 words."""
    negated: float
    """"nobody", "nothing" and "none" in 1,000 words."""
    words: int

    @property
    def faults(self) -> list[str]:
        bounds = (
            ("words in the median sentence", self.sentence_words, SENTENCE_WORDS_MAX),
            ("relative and question words in 100", self.relative, RELATIVE_PER_100_MAX),
            ("of nobody, nothing and none in 1,000", self.negated, NEGATED_PER_1000_MAX),
        )
        return [f"{value:.1f} {name}, at most {bound:g}" for name, value, bound in bounds if round(value, 2) > bound]


def measure(markdown: str) -> Prose:
    """The figures of one page; a page without sentences passes."""
    lines = [line for line in _CODE_BLOCK.sub("", markdown).splitlines() if not _NO_PROSE.match(line.strip())]
    text = re.sub(r"`[^`]*`", "code", "\n".join(lines))
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    blocks = re.split(r"\n[ ]*\n|\n[ ]*(?:[-*]|\d+\.) ", text)
    sentences = [sentence for block in blocks for sentence in re.split(r"(?<=[.!?:])\s+(?=\S)", " ".join(block.split()))]
    lengths = [length for sentence in sentences if (length := len(sentence.split())) >= _SENTENCE_WORDS_MIN]
    words = [word.lower() for word in re.findall(r"[A-Za-z']+", text)]
    return Prose(
        sentence_words=statistics.median(lengths) if lengths else 0,
        relative=100 * sum(word in _RELATIVE for word in words) / max(300, len(words)),
        negated=1000 * sum(word in _NEGATED for word in words) / max(1000, len(words)),
        words=len(words),
    )


def pages(root: Path = ROOT) -> list[str]:
    """All pages that people read, by their paths in the repository; the changelog of past versions stays as it was written."""
    own = [root / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")]
    inside = [root / folder / "README.md" for folder in ("localstack", "functions/sandbox", "examples")]
    found = [*own, *(path for path in inside if path.exists()), *sorted((root / "docs").rglob("*.md"))]
    return [str(path.relative_to(root)) for path in found]


def docstrings(root: Path = ROOT) -> str:
    """The docstrings of the product's modules, classes and functions, as paragraphs."""
    named = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    files = [path for folder in ("layers", "functions", "infra") for path in sorted((root / folder).rglob("*.py"))]
    nodes = (node for path in files for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, named))
    return "\n\n".join(text for node in nodes if (text := ast.get_docstring(node)))


def faults(root: Path = ROOT) -> list[str]:
    """The faults of each page, and of all docstrings together."""
    found = [f"{page}: {fault}" for page in pages(root) for fault in measure((root / page).read_text()).faults]
    texts = measure(docstrings(root))
    if texts.sentence_words > SENTENCE_WORDS_MAX:
        found.append(f"docstrings: {texts.sentence_words:.1f} words in the median sentence, at most {SENTENCE_WORDS_MAX}")
    if texts.relative > DOCSTRINGS_RELATIVE_PER_100_MAX:
        bound = DOCSTRINGS_RELATIVE_PER_100_MAX
        found.append(f"docstrings: {texts.relative:.2f} relative and question words in 100, at most {bound:g}")
    return found


def main(names: list[str]) -> int:
    """Show the figures of these pages, or check all."""
    for name in names:
        prose = measure(Path(name).read_text())
        print(f"{name}: {prose.words} words, {'; '.join(prose.faults) or 'passes'}")  # noqa: T201
    found = [] if names else faults()
    print(*found, sep="\n", end="\n" * bool(found), file=sys.stderr)  # noqa: T201
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
