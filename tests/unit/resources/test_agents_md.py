"""What a model is told of the ``AGENTS.md`` of its container."""

from moorage import limits
from moorage.containers.store import ContainerFileRecord
from moorage.loop.prepare import instructions_of, of_folder, with_instructions

from tests.unit.resources.test_file_map import QUESTION


def file(path: str, size: int = 10) -> ContainerFileRecord:
    return ContainerFileRecord("t", "cntr_1", f"/mnt/data/{path}", size, 0, "assistant", "", "")


FILES = [file(path) for path in ("AGENTS.md", "repo/AGENTS.md", "repo/src/AGENTS.md", "repo2/AGENTS.md", "repo/MY_AGENTS.md", "a.txt")]


async def content(file: ContainerFileRecord, count: int) -> bytes:
    return (f"of {file.path.count('/')}".encode() * file.bytes)[: min(count, file.bytes)]


def paths(folder: str) -> list[str]:
    return [file.path.removeprefix("/mnt/data/") for file in of_folder(FILES, folder)]


def test_those_of_a_folder_and_of_the_folders_above_hold_for_it() -> None:
    assert paths("/mnt/data") == ["AGENTS.md"]
    assert paths("/mnt/data/repo") == ["AGENTS.md", "repo/AGENTS.md"]
    assert paths("/mnt/data/repo/src/deep") == ["AGENTS.md", "repo/AGENTS.md", "repo/src/AGENTS.md"]


async def test_the_nearest_is_told_last_and_holds() -> None:
    text = await instructions_of(of_folder(FILES, "/mnt/data/repo"), "/mnt/data/repo", content)
    assert text == (
        "# AGENTS.md instructions for /mnt/data/repo\n\n<INSTRUCTIONS>\nWhere they disagree, the later one holds.\n\n"
        "[/mnt/data/AGENTS.md]\nof 3of 3of\n\n[/mnt/data/repo/AGENTS.md]\nof 4of 4of\n</INSTRUCTIONS>"
    )


async def test_one_alone_needs_no_order_and_none_is_nothing() -> None:
    text = await instructions_of([file("AGENTS.md")], "/mnt/data", content)
    assert text == "# AGENTS.md instructions for /mnt/data\n\n<INSTRUCTIONS>\n[/mnt/data/AGENTS.md]\nof 3of 3of\n</INSTRUCTIONS>"
    assert await instructions_of([], "/mnt/data", content) is None


async def test_where_not_all_fits_what_is_farthest_away_is_left_out() -> None:
    large = [file("AGENTS.md"), file("repo/AGENTS.md", limits.AGENTS_MD_BYTES_MAX), file("repo/src/AGENTS.md", 20)]
    text = await instructions_of(large, "/mnt/data/repo/src", content)
    assert text is not None
    assert len(text) < limits.AGENTS_MD_BYTES_MAX + 1_000
    assert "[/mnt/data/AGENTS.md is left out: the nearer ones take all the room that there is.]" in text
    assert "[The rest of /mnt/data/repo/AGENTS.md is left out.]" in text
    assert text.endswith("[/mnt/data/repo/src/AGENTS.md]\nof 5of 5of 5of 5of 5\n</INSTRUCTIONS>")


async def changed(file: ContainerFileRecord, count: int) -> bytes:
    return b"Others"


async def test_the_same_is_not_said_twice_but_what_has_changed_is() -> None:
    folder, files = "/mnt/data", [file("AGENTS.md"), file("repo/AGENTS.md")]
    text = await instructions_of(files[:1], folder, content)
    first = await with_instructions([QUESTION], [], files, folder, content)
    assert [item["content"][0]["text"] for item in first] == [text, "And now?"]
    assert await with_instructions([QUESTION], first, files, folder, content) == [QUESTION]
    assert len(await with_instructions([QUESTION], first, files, folder, changed)) == 2
    assert len(await with_instructions([QUESTION], first, files, "/mnt/data/repo", content)) == 2, "another folder has its own"
    assert await with_instructions([QUESTION], [], [], folder, content) == [QUESTION]
