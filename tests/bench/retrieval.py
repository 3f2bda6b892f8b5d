"""How well and how fast files are searched: ``python -m tests.bench.retrieval [--chunks 100000] [--real 4000] [--report]``.

With ``--report`` the tables are put into ``docs/benchmarks.md``. It fails if both rankings together find less in a set than one does.

Quality is measured over four sets. The right answers of three nobody had to judge:

* *docstrings* of the standard library and of numpy: the first sentence of one is the query, and the rest of it what has to be found.
* *paraphrases*: sentences that the program writes, asked for in words that none of them has.
* *codes*: order numbers among sentences, asked for by the number.
* *short documents*: ten of them, and questions in other words, which a person has written.

Beside each ranking stands reciprocal rank fusion, by which searches were ranked before. The questions with an even number are those
that the rule of the ranking was chosen by; the odd ones are told by themselves.

Speed and memory are measured through a local stack's bucket. The chunks of the large store are a few thousand again and
again, with vectors of their own: how long a search takes depends on how many there are, and not on what they say.
"""

import argparse
import ast
import asyncio
import itertools
import math
import random
import resource
import statistics
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import bm25s
import numpy as np
from moorage.knowledge.embeddings import Embeddings
from moorage.knowledge.index import IndexedFile, IndexRef, SearchOptions, Weights
from moorage.knowledge.object_index import ObjectIndex
from moorage.knowledge.segments import Segment
from moorage.knowledge.static_model import StaticEmbedder
from moorage.store import object_keys
from moorage.store.blobs import Blobs
from moorage.store.file_blobs import FileBlobs

from tests.bench import short_documents
from tests.bench.report import Table, machine, report
from tests.stack import Stack
from tests.unit.knowledge.embedders import Counted, no_budgets
from tests.unit.store.memory import MemoryBlobs

MODEL: Final = StaticEmbedder()
EMBEDDINGS: Final = Embeddings(MODEL, {MODEL.name: MODEL}, Counted(), {}, no_budgets())
RANKINGS: Final = {"BM25": Weights(0, 1), "vectors": Weights(1, 0), "both": Weights(1, 1)}
_RIVAL: Final = "both, by reciprocal rank fusion"
_RIVAL_DEPTH: Final = 200
_RIVAL_CONSTANT: Final = 60
"""``k`` as its authors have it (Cormack, Clarke, Büttcher, 2009)."""
_BEST: Final = 10
_FILE_CHUNKS: Final = 100
_CHUNK_WORDS: Final = 600
"""About 800 tokens, as chunks are by default."""


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    answer: int
    """The number of the text that has to be found."""


@dataclass(frozen=True, slots=True)
class Set:
    name: str
    texts: list[str]
    questions: list[Question]


# --- texts ----------------------------------------------------------------------------------------------------------------------------


def docstrings(most: int, questions: int) -> Set:
    found = list(dict.fromkeys(itertools.islice(_split_docstrings(), 20_000)))
    drawn = random.Random(1).sample(found, min(most, len(found)))
    asked = [Question(query, number) for number, (query, _) in enumerate(drawn[:questions])]
    return Set("docstrings", [rest for _, rest in drawn], asked)


def _split_docstrings() -> Iterator[tuple[str, str]]:
    roots = [Path(sysconfig.get_paths()["stdlib"]), Path(np.__file__).parent]
    for path in (path for root in roots for path in sorted(root.rglob("*.py"))):
        if ("site-packages" in path.parts and "numpy" not in path.parts) or {"test", "tests", "idlelib"} & set(path.parts):
            continue
        try:
            tree = ast.parse(path.read_text("utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                query, _, rest = (ast.get_docstring(node) or "").partition("\n\n")
                if 20 <= len(query) <= 200 and len(rest) >= 200:
                    yield " ".join(query.split()), rest[:3_000]


_THINGS: Final = (
    ("car", "automobile"),
    ("doctor", "physician"),
    ("house", "home"),
    ("boat", "ship"),
    ("child", "kid"),
    ("teacher", "professor"),
    ("movie", "film"),
    ("forest", "woods"),
    ("street", "road"),
    ("gift", "present"),
    ("couch", "sofa"),
    ("lawyer", "attorney"),
    ("garbage", "trash"),
    ("rock", "stone"),
    ("dinner", "supper"),
    ("holiday", "vacation"),
    ("illness", "disease"),
    ("job", "work"),
    ("picture", "photo"),
    ("shop", "store"),
    ("soldier", "troops"),
    ("thief", "robber"),
    ("town", "city"),
    ("wedding", "marriage"),
)
_DEEDS: Final = (
    ("bought", "purchased"),
    ("repaired", "fixed"),
    ("began", "started"),
    ("finished", "completed"),
    ("chose", "selected"),
    ("hid", "concealed"),
    ("shut", "closed"),
    ("assisted", "helped"),
    ("destroyed", "demolished"),
    ("obtained", "acquired"),
    ("described", "explained"),
    ("discovered", "found"),
)


def paraphrases(most: int) -> Set:
    """A sentence for each pair of a thing and a deed; the query says both in other words."""
    pairs = list(itertools.product(_THINGS, _DEEDS))
    random.Random(2).shuffle(pairs)
    texts = [f"Yesterday they {deed[0]} the {thing[0]}, as had been planned for weeks." for thing, deed in pairs]
    return Set("paraphrases", texts, [Question(f"{thing[1]} {deed[1]}", number) for number, (thing, deed) in enumerate(pairs[:most])])


def codes(most: int, questions: int) -> Set:
    drawn = random.Random(3)
    numbers = [f"{drawn.choice('KLMPQRX')}{drawn.choice('BCDFGZ')}-{drawn.randint(10_000, 99_999)}" for _ in range(most)]
    texts = [f"Order {number} was shipped to the customer on day {drawn.randint(1, 365)} of the year." for number in numbers]
    return Set("codes", texts, [Question(f"What became of order {numbers[at]}?", at) for at in range(questions)])


def short() -> Set:
    return Set("short documents", list(short_documents.TEXTS), [Question(*asked) for asked in short_documents.QUESTIONS])


# --- quality --------------------------------------------------------------------------------------------------------------------------


async def quality(tried: Set) -> list[tuple[str, ...]]:
    index = ObjectIndex(MemoryBlobs(), EMBEDDINGS, clock=time.time)
    store = IndexRef("bench", "vs_quality", MODEL.name, MODEL.dimension)
    for start in range(0, len(tried.texts), _FILE_CHUNKS):
        await index.put_file(store, IndexedFile(f"file-{start:06d}", "bench"), tried.texts[start : start + _FILE_CHUNKS])
    rows: list[tuple[str, ...]] = []
    for name in (*RANKINGS, _RIVAL):
        ranks = [await _rank(index, store, tried, question, name) for question in tried.questions]
        unseen = ranks[1::2]
        rows.append((f"{tried.name} ({len(tried.texts):,} texts, {len(ranks)} queries)", name, *_figures(ranks), *_figures(unseen)))
    return rows


def worse(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Where both rankings together find less than the better of the two: the names of sets and columns."""
    by_set: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, ranking, *figures in rows:
        by_set.setdefault(name, {})[ranking] = tuple(figures)
    return [
        f"{name}: {column}"
        for name, rankings in by_set.items()
        for column, both, *parts in zip(_COLUMNS[2:], *(rankings[ranking] for ranking in ("both", "BM25", "vectors")), strict=True)
        if float(both) < max(map(float, parts))
    ]


def _figures(ranks: Sequence[int | None]) -> tuple[str, str]:
    recall = sum(rank is not None for rank in ranks) / len(ranks)
    gain = sum(1 / math.log2(rank + 1) for rank in ranks if rank is not None) / len(ranks)
    return f"{recall:.3f}", f"{gain:.3f}"


async def _rank(index: ObjectIndex, store: IndexRef, tried: Set, question: Question, ranking: str) -> int | None:
    """The place of the answer among the best, from 1 on."""
    if ranking == _RIVAL:
        found = await _fused_by_places(index, store, question)
    else:
        hits = await index.search([store], [question.text], SearchOptions(max_num_results=_BEST, weights=RANKINGS[ranking]))
        found = [hit.text for hit in hits]
    wanted = tried.texts[question.answer]
    return next((rank for rank, text in enumerate(found, 1) if text == wanted), None)


async def _fused_by_places(index: ObjectIndex, store: IndexRef, question: Question) -> list[str]:
    scores: dict[tuple[str, int], float] = {}
    for weights in (Weights(1, 0), Weights(0, 1)):
        hits = await index.search([store], [question.text], SearchOptions(max_num_results=_RIVAL_DEPTH, weights=weights))
        times = Counter[str]()  # Texts that are the same are several chunks, which stand in one order in both rankings.
        for place, hit in enumerate((hit for hit in hits if hit.score > 0), 1):
            key = (hit.text, times[hit.text])
            times[hit.text] += 1
            scores[key] = scores.get(key, 0.0) + 1 / (_RIVAL_CONSTANT + place)
    best = sorted(scores, key=lambda key: (-scores[key], key))[:_BEST]
    return [text for text, _ in best]


# --- speed ----------------------------------------------------------------------------------------------------------------------------


def written(texts: Sequence[str], chunks: int) -> list[str]:
    """Chunks as long as those of files are by default, of the words of real texts, which are as frequent as they are there."""
    words = [word for text in texts for word in text.split()]
    drawn = random.Random(4)
    return [" ".join(drawn.choices(words, k=_CHUNK_WORDS)) for _ in range(chunks)]


async def speed(blobs: Blobs, texts: list[str], real: int, chunks: int) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []

    def _told(name: str, value: str) -> None:
        rows.append((name, value))

    index = ObjectIndex(blobs, EMBEDDINGS, clock=time.time)
    store = IndexRef("bench", "vs_speed", MODEL.name, MODEL.dimension)
    made = written(texts, real)
    began = time.perf_counter()
    for start in range(0, real, _FILE_CHUNKS):
        await index.put_file(store, IndexedFile(f"file-{start:07d}", "bench"), made[start : start + _FILE_CHUNKS])
    _told(f"{real:,} chunks of {_CHUNK_WORDS} words embedded and stored", f"{real / (time.perf_counter() - began):.0f} chunks a second")
    await _multiply(blobs, store, real, chunks)
    before = _memory()
    began = time.perf_counter()
    await index.search([store], ["first"], SearchOptions())
    _told(f"first search of {chunks:,} chunks, which reads the index", f"{time.perf_counter() - began:.1f} s")
    _told("memory that the index takes in a process", f"{_memory() - before:.0f} MiB")
    for name, weights in RANKINGS.items():
        took = await _searches(index, store, texts, weights)
        _told(f"search of {chunks:,} chunks, {name}", f"p50 {statistics.median(took):.0f} ms, p95 {sorted(took)[-3]:.0f} ms")
    began = time.perf_counter()
    await index.put_file(store, IndexedFile("file-new", "new"), made[:1])
    await index.search([store], ["new"], SearchOptions())
    _told("a file of one chunk added, and the search that sees it", f"{1000 * (time.perf_counter() - began):.0f} ms")
    rows.append(_other(made))
    return rows


async def _searches(index: ObjectIndex, store: IndexRef, texts: Sequence[str], weights: Weights) -> list[float]:
    took = []
    for query in (" ".join(text.split()[:12]) for text in random.Random(5).sample(list(texts), 50)):
        began = time.perf_counter()
        await index.search([store], [query], SearchOptions(weights=weights))
        took.append(1000 * (time.perf_counter() - began))
    return took


async def _multiply(blobs: Blobs, store: IndexRef, real: int, chunks: int) -> None:
    """The same segments under other names, with other vectors."""
    drawn = np.random.default_rng(6)
    names = [key async for key, _ in blobs.list_prefix(object_keys.index_segments(store.tenant, store.store_id))]
    segments = [Segment.from_bytes(await blobs.get_bytes(name)) for name in names]
    for number, segment in zip(range(real, chunks, _FILE_CHUNKS), itertools.cycle(segments), strict=False):
        vectors = drawn.normal(size=segment.vectors.shape).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        copied = replace(segment, file=IndexedFile(f"file-{number:07d}", "bench"), vectors=vectors)
        key = object_keys.index_segment(store.tenant, store.store_id, copied.file.file_id, "0" * 16)
        await blobs.put_bytes(key, copied.to_bytes())
        text = object_keys.index_text(store.tenant, store.store_id, copied.file.file_id, "0" * 16)
        await blobs.copy(object_keys.index_text_of(names[segments.index(segment)]), text)


def _other(made: Sequence[str]) -> tuple[str, str]:
    """What the library would take that indexes all of a corpus at once."""
    began = time.perf_counter()
    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(made), show_progress=False), show_progress=False)
    seconds = time.perf_counter() - began
    return f"`bm25s`: {len(made):,} chunks indexed anew, as after each file that comes or goes", f"{1000 * seconds:.0f} ms"


def _memory() -> float:
    """The most that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


_COLUMNS: Final = ("texts", "ranking", "recall@10", "nDCG@10", "recall@10, odd", "nDCG@10, odd")
_QUALITY_NOTE: Final = (
    "By the small model that comes along: recall of the ten best results, and nDCG of their order. Docstrings of the standard library "
    "and of numpy are asked for by their first sentence, sentences by a paraphrase without a word of theirs, orders by their number. "
    "The last two columns are of the questions with an odd number. The rule was chosen by the others, with these in sight."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--real", type=int, default=4_000)
    parser.add_argument("--report", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    seen_machine = f"{time.strftime('%Y-%m-%d')}, on {machine()}"
    documents = docstrings(5_000, 500)
    sets = (documents, paraphrases(200), codes(2_000, 200), short())
    found = [row for tried in sets for row in asyncio.run(quality(tried))]
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(Path(folder)).start()
        try:
            with stack.journal() as journal:
                blobs = FileBlobs(journal, ThreadPoolExecutor(32))
                taken = asyncio.run(speed(blobs, documents.texts, options.real, options.chunks))
        finally:
            stack.stop()
    tables = [
        Table("Finding in files", _COLUMNS, found, _QUALITY_NOTE),
        Table("Searching many chunks", ("", ""), taken, f"Through a local stack's bucket. {seen_machine}"),
    ]
    for table in tables:
        print(f"\n{table.markdown()}")
    if lost := worse(found):
        sys.exit(f"Both rankings together find less than the better of them. {'; '.join(lost)}")
    if options.report:
        report(tables)


if __name__ == "__main__":
    main()
