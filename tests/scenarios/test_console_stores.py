"""Vector stores in the console, and what comes of text that is read from the right."""

import re
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from playwright.sync_api import Locator, Page, expect

from tests.browser import WAIT_MS, Console
from tests.scenarios.visits import make_key
from tests.stack import SHELL, Stack, say, script, shell

expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    return make_key(stack, "reader")


@pytest.fixture
def console(console: Console, key: str) -> Console:
    return console.enter(key)


def test_a_store_is_made_filled_searched_and_deleted_by_hand(console: Console, client: OpenAI, tmp_path: Path) -> None:
    page = console.go("#/vector_stores").page
    page.get_by_label("Name of a new store").fill("harbour")
    page.get_by_label("Days of rest after which it expires").fill("7")
    page.get_by_role("button", name="New").click()
    expect(page.get_by_role("heading", level=1, name="harbour")).to_be_visible()
    (store,) = client.vector_stores.list().data
    assert store.expires_after is not None
    assert store.expires_after.days == 7
    _add(page, tmp_path, {"tides.md": b"Spring tides come with <b>new</b> and full moon.", "ship.png": b"\x89PNG\r\n\x1a\n\0\0"})
    failed = page.get_by_role("row").filter(has_text="ship.png")
    expect(failed.get_by_text("failed", exact=True)).to_be_visible()
    (picture,) = client.vector_stores.files.list(store.id, filter="failed").data
    assert picture.last_error is not None
    expect(failed).to_contain_text(picture.last_error.message)
    assert console.barriers() == []
    page.get_by_role("button", name="failed 1").click()
    expect(page.get_by_role("row")).to_have_count(2)
    failed.get_by_role("button", name="Take ship.png out").click()
    failed.get_by_role("button", name="Really?").click()
    expect(page.get_by_text("No file of this status.")).to_be_visible()
    page.get_by_role("button", name="all 1").click()
    page.get_by_role("button", name="Text of tides.md").click()
    expect(page.get_by_role("group", name="Text that was read")).to_have_text("Spring tides come with <b>new</b> and full moon.")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Really?").click()
    expect(page.get_by_role("heading", name="No vector store yet")).to_be_visible()
    assert client.vector_stores.list().data == []


def _add(page: Page, folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Add files").click()
    chooser.value.set_files([folder / name for name in files])


def test_a_search_shows_what_fits_how_well_and_where_it_stands(console: Console, client: OpenAI) -> None:
    store = client.vector_stores.create(name="notes")
    long = "Spring tides come with new moon. " + "The harbour is quiet. " * 60
    given = {"tides.md": (long, 2025), "ropes.md": ("A rope holds a ship.", 2026)}
    for name, (text, year) in given.items():
        file = client.files.create(file=(name, text.encode()), purpose="assistants")
        client.vector_stores.files.create_and_poll(file.id, vector_store_id=store.id, attributes={"year": year})
    page = console.go(f"#/vector_stores/{store.id}?tab=search").page
    box = page.get_by_role("searchbox", name="Search the store")
    box.fill("spring tides with the new moon")
    page.keyboard.press("Enter")
    best = client.vector_stores.search(store.id, query="spring tides with the new moon").data[0]
    first = page.get_by_role("list", name="Passages").locator("li").first
    expect(first).to_contain_text("tides.md")
    expect(first).to_contain_text(f"{best.score:.4f}")
    ranks: Any = best.to_dict()["ranks"]
    for half, name in (("embedding", "meaning"), ("text", "words")):
        expect(first.locator(".halves")).to_contain_text(re.compile(rf"{name} 1st {ranks[half]['score']:.2f}"))
    expect(first.locator("mark").first).to_have_text("Spring")
    assert len(str(first.locator("blockquote").text_content())) < len(best.content[0].text)
    first.get_by_role("button", name="All of passage 1").click()
    expect(first.locator("blockquote")).to_have_text(best.content[0].text)
    assert console.barriers() == []
    box.fill("a rope in the harbour")
    page.get_by_label("Only files whose attributes fit").fill("year>=2026")
    box.press("Enter")
    expect(page.get_by_role("list", name="Passages").locator("li")).to_have_count(1)
    expect(first).to_contain_text("ropes.md")
    box.fill("vessel")
    box.press("Enter")
    expect(first.locator(".halves")).to_contain_text("words no place")
    box.fill("a rope in the harbour")
    box.press("Enter")
    page.reload()
    expect(first).to_contain_text("ropes.md")
    page.get_by_label("Only files whose attributes fit").fill("year")
    box.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("“year” is no condition")
    client.vector_stores.delete(store.id)


def test_conditions_and_excerpts_are_made_as_they_are_written(console: Console) -> None:
    filters = console.evaluate(
        "async ([address, texts]) => { const { filterOf } = await import(address); return texts.map((text) => filterOf(text)) }",
        [console.module("model/passages.js"), ["", "a=1", 'a="1" b!=x y', "draft=true n<-2.5", 'title="two words"', "=x"]],
    )
    assert filters == [
        {"filter": None},
        {"filter": {"type": "eq", "key": "a", "value": 1}},
        {"problem": "y"},
        {
            "filter": {
                "type": "and",
                "filters": [{"type": "eq", "key": "draft", "value": True}, {"type": "lt", "key": "n", "value": -2.5}],
            }
        },
        {"filter": {"type": "eq", "key": "title", "value": "two words"}},
        {"problem": "=x"},
    ]
    shown = console.evaluate(
        """async ([address, text, query]) => {
            const { excerpt } = await import(address);
            const { pieces, isBegun, isGoing } = excerpt(text, query);
            const texts = (some) => some.map((piece) => piece.text);
            return [texts(pieces.filter((piece) => piece.isMarked)), texts(pieces).join(""), isBegun, isGoing];
        }""",
        [console.module("model/passages.js"), f"{'a b ' * 200}The Mole (harbour) holds. {'c d ' * 200}", "mole (HARBOUR) .*"],
    )
    assert shown[0] == ["Mole", "harbour"]
    assert "The Mole (harbour) holds." in shown[1]
    assert len(shown[1]) < 700
    assert shown[2:] == [True, True]


# --- text that is read from the right ---

HEBREW = "\u05e9\u05dc\u05d5\u05dd"
TURNED = f"{HEBREW}\u202ecod.txt"
"""A mark in it turns all that follows."""

_LEFTS = """(element, words) => words.map((word) => {
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const at = walker.currentNode.data.indexOf(word);
        if (at < 0) continue;
        const range = document.createRange();
        range.setStart(walker.currentNode, at);
        range.setEnd(walker.currentNode, at + word.length);
        return range.getBoundingClientRect().left;
    }
    throw new Error(`no ${word}`);
})"""


def stand_in_order(place: Locator, *words: str) -> None:
    """On the screen, from the left: not only in the text."""
    lefts = place.evaluate(_LEFTS, list(words))
    assert lefts == sorted(lefts), list(zip(words, lefts, strict=True))


def test_words_that_are_read_from_the_right_move_none_beside_them(console: Console, client: OpenAI) -> None:
    tools: Any = [SHELL]
    said = f"Run `{HEBREW}` 1 then [{HEBREW}](https://a.example/) 2.\n\n{HEBREW} 3\n\nThe end."
    steps = script(shell(f"printf x > '/mnt/data/{HEBREW}\u202e 4.txt'"), say(said))
    ran = client.responses.create(model="demo", input=steps, tools=tools)
    page = console.go(f"#/runs/{ran.id}").page
    console.transcript.get_by_role("button", name="Round 2").click()
    paragraphs = console.transcript.locator(".said").last.locator("p")
    stand_in_order(paragraphs.nth(0), "Run", HEBREW, "1", "then", "2")
    assert [paragraphs.nth(at).evaluate("(p) => getComputedStyle(p).direction") for at in range(3)] == ["ltr", "rtl", "ltr"]
    console.go(f"#/runs/{ran.id}?tab=files")
    saved = page.get_by_role("complementary", name="Details").get_by_role("row").filter(has_text=HEBREW)
    expect(saved.get_by_role("link")).to_have_text(f"{HEBREW} 4.txt")
    saved.get_by_role("link").click()
    page.get_by_role("dialog", name="File").get_by_role("link", name="Open its container").click()
    entry = page.get_by_role("list", name="Files").get_by_role("listitem")
    stand_in_order(entry, HEBREW, "1 B")
    entry.get_by_role("button", name="Delete").click()
    entry.get_by_role("button", name="Really?").click()
    stand_in_order(page.locator(".notices").get_by_text("is deleted"), HEBREW, "is", "deleted")


def test_a_name_that_turns_the_reading_direction_passes_for_no_other(console: Console, client: OpenAI) -> None:
    file = client.files.create(file=(TURNED, b"The spring tide."), purpose="assistants")
    store = client.vector_stores.create(name=f"{HEBREW}\u202e 5")
    client.vector_stores.files.create_and_poll(file.id, vector_store_id=store.id, attributes={HEBREW: f"{HEBREW} 6"})
    page = console.go("#/files").page
    row = page.get_by_role("row").filter(has_text=HEBREW)
    expect(row.get_by_role("link").first).to_have_text(f"{HEBREW}cod.txt")
    stand_in_order(row, "cod.txt", "file-", "assistants", "16 B")
    console.go(f"#/vector_stores/{store.id}?tab=search&ask=tide")
    passage = page.get_by_role("list", name="Passages").get_by_role("listitem")
    (found,) = client.vector_stores.search(store.id, query="tide").data
    stand_in_order(passage.get_by_role("paragraph"), "1", "cod.txt", f"{found.score:.4f}", "6")
    stand_in_order(page.get_by_role("banner").first, "Vector stores", "vs_")
    assert "\u202e" not in str(page.get_by_role("main").text_content())
    client.vector_stores.delete(store.id)
