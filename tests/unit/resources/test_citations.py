import unicodedata
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moorage import limits
from moorage.containers.citations import citations
from moorage.containers.store import ContainerFileRecord


def stored(path: str, created_at: int = 0) -> ContainerFileRecord:
    return ContainerFileRecord("ten", "cntr_1", f"/mnt/data/{path}", 1, created_at, "assistant", "00", "T/ten/C/cntr_1/00")


PLOT, NESTED, BARE, SPACED = stored("plot.png"), stored("out/plot.png"), stored("Makefile"), stored("my data.csv")
FILES = [PLOT, NESTED, BARE, SPACED, stored("data.csv")]


def cited(text: str, files: list[ContainerFileRecord] = FILES) -> list[tuple[str, str]]:
    """What is cited: the words in the text, and the path of the file."""
    paths = {file.id: file.path.removeprefix("/mnt/data/") for file in files}
    return [(text[c["start_index"] : c["end_index"]], paths[c["file_id"]]) for c in citations(text, files)]


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "a path": ("See /mnt/data/plot.png.", [("/mnt/data/plot.png", "plot.png")]),
        "a path in a folder": ("See /mnt/data/out/plot.png, please", [("/mnt/data/out/plot.png", "out/plot.png")]),
        "a link": ("[plot](sandbox:/mnt/data/plot.png)", [("sandbox:/mnt/data/plot.png", "plot.png")]),
        "an encoded link": ("(sandbox:/mnt/data/my%20data.csv)", [("sandbox:/mnt/data/my%20data.csv", "my data.csv")]),
        "a path by the folder's other name": ("See /workspace/out/plot.png.", [("/workspace/out/plot.png", "out/plot.png")]),
        "a link by the folder's other name": ("[plot](sandbox:/workspace/plot.png)", [("sandbox:/workspace/plot.png", "plot.png")]),
        "a folder of that name in another one": ("/srv/workspace/plot.png and /mnt/data/workspace/plot.png", []),
        "a bare name": ("I drew `plot.png` for you.", [("plot.png", "plot.png")]),
        "a bare name with spaces": ("Open my data.csv now", [("my data.csv", "my data.csv")]),
        "a relative path": ("It is out/plot.png", [("out/plot.png", "out/plot.png")]),
        "a name at the end of a sentence": ("It is plot.png. Enjoy", [("plot.png", "plot.png")]),
        "two mentions": ("plot.png and data.csv", [("plot.png", "plot.png"), ("data.csv", "data.csv")]),
        "a name without a dot, as a path": ("/mnt/data/Makefile", [("/mnt/data/Makefile", "Makefile")]),
        "a name without a dot, as a word": ("The Makefile builds it", []),
        "the end of a longer name": ("myplot.png big-plot.png ../plot.png", []),
        "the beginning of a longer name": ("plot.png2 plot.pngs plot.png.bak /mnt/data/plot.png.bak plot.png-old", []),
        "another folder": ("/mnt/data/other/plot.png and /srv/plot.png", []),
        "characters beyond ASCII before it": ("Für Ihr 🙂: plot.png", [("plot.png", "plot.png")]),
        "nothing": ("Done.", []),
        "an empty text": ("", []),
    }.values(),
    ids=str,
)
def test_a_citation_covers_the_words_that_name_the_file(text: str, expected: list[tuple[str, str]]) -> None:
    assert cited(text) == expected


REPORT, FACADE, HANGUL, LITERAL = (
    stored(name) for name in ("Q3 report (final)!.csv", "fac\u0327ade.csv", "\ud55c\uae00.csv", "50%25.csv")
)


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "as encodeURI writes it": (
            "(sandbox:/mnt/data/Q3%20report%20(final)!.csv)",
            [("sandbox:/mnt/data/Q3%20report%20(final)!.csv", REPORT)],
        ),
        "as quote() writes it": (
            "(sandbox:/mnt/data/Q3%20report%20%28final%29%21.csv)",
            [("sandbox:/mnt/data/Q3%20report%20%28final%29%21.csv", REPORT)],
        ),
        "a bare name, encoded": ("[it](Q3%20report%20(final)!.csv) 🙂", [("Q3%20report%20(final)!.csv", REPORT)]),
        "composed, where the file's name is decomposed": ("It is fa\u00e7ade.csv.", [("fa\u00e7ade.csv", FACADE)]),
        "decomposed, as the file's name is": ("It is fac\u0327ade.csv.", [("fac\u0327ade.csv", FACADE)]),
        "encoded in lower case": ("/mnt/data/fa%c3%a7ade.csv", [("/mnt/data/fa%c3%a7ade.csv", FACADE)]),
        "encoded and decomposed": ("See /mnt/data/fac%CC%A7ade.csv.", [("/mnt/data/fac%CC%A7ade.csv", FACADE)]),
        "letters that compose syllables": (
            "\u1112\u1161\u11ab\u1100\u1173\u11af.csv!",
            [("\u1112\u1161\u11ab\u1100\u1173\u11af.csv", HANGUL)],
        ),
        "a name that looks encoded": ("See 50%25.csv", [("50%25.csv", LITERAL)]),
        "its encoding": ("See 50%2525.csv", [("50%2525.csv", LITERAL)]),
        "bytes that are no UTF-8": ("%ff%fe/ plot.png %", [("plot.png", PLOT)]),
    }.values(),
    ids=str,
)
def test_a_name_is_found_however_it_is_encoded_or_composed(text: str, expected: list[tuple[str, ContainerFileRecord]]) -> None:
    files = [REPORT, FACADE, HANGUL, LITERAL, PLOT]
    assert cited(text, files) == [(words, file.path.removeprefix("/mnt/data/")) for words, file in expected]


def test_a_name_as_it_stands_goes_before_its_decoded_form() -> None:
    assert cited("50%25.csv", [stored("50%.csv"), LITERAL]) == [("50%25.csv", "50%25.csv")]


@given(text=st.text(alphabet="ab%20c3e\u0301\u1112\u1161\u11ab/. "))
def test_whatever_is_encoded_a_citation_names_a_file(text: str) -> None:
    files = [stored("a.b"), stored("\u00e9.c"), stored("\ud55c.c")]
    for words, path in cited(text, files):
        assert unicodedata.normalize("NFC", unquote(words)).removeprefix("/mnt/data/") == path


def test_a_citation_has_the_wires_shape() -> None:
    expected: list[dict[str, Any]] = [
        {
            "type": "container_file_citation",
            "container_id": "cntr_1",
            "file_id": PLOT.id,
            "filename": "plot.png",
            "start_index": 4,
            "end_index": 12,
        }
    ]
    assert citations("See plot.png", FILES) == expected


def test_of_files_with_the_same_name_the_one_nearest_to_the_root_is_meant() -> None:
    assert cited("plot.png", [NESTED, PLOT]) == [("plot.png", "plot.png")]


class Searched(str):
    """A text that counts how often it is searched."""

    times = 0

    def find(self, *given: Any) -> int:
        self.times += 1
        return super().find(*given)


def test_a_name_of_many_files_is_looked_for_once() -> None:
    files = [stored(f"d{number}/a.b") for number in range(300)]
    text = Searched("a.b " * 300)
    assert len(citations(text, [stored("a.b"), *files])) == limits.CITATIONS_MAX
    assert text.times < 300 + 5 * len(files)


def test_of_equally_near_files_the_newest_is_meant() -> None:
    files = [stored("a/plot.png", 1), stored("b/plot.png", 2), stored("c/plot.png", 1)]
    assert cited("plot.png", files) == [("plot.png", "b/plot.png")]


@given(before=st.text(), after=st.text())
def test_whatever_stands_around_a_path_its_citation_covers_just_that_path(before: str, after: str) -> None:
    text = f"{before}\n/mnt/data/plot.png\n{after}"
    start = len(before) + 1
    spans = [(c["start_index"], c["end_index"]) for c in citations(text, [PLOT])]
    assert (start, start + len("/mnt/data/plot.png")) in spans
    assert spans == sorted(spans)
