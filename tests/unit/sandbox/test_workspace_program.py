"""``moorage-workspace``, the program that answers the workspace's questions about files."""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.drawing import VAST
from tests.unit.sandbox.support import EXEC_SERVER

PROGRAM = EXEC_SERVER.parent / "bin" / "moorage-workspace"

CODE = """\
import os

# Adds numbers.
@cached
def add(a, b):
    # Both may be negative.
    total = a + b

    if total > 3:
        log(total)
        for each in range(total):
            use(each)
    return total


def other():
    return None
"""


@pytest.fixture(scope="module")
def program() -> Iterator[ModuleType]:
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader = SourceFileLoader("moorage_workspace", str(PROGRAM))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    yield module
    sys.dont_write_bytecode = before


@pytest.fixture
def code(tmp_path: Path) -> Path:
    path = tmp_path / "code.py"
    path.write_text(CODE)
    return path


def numbers(answer: str) -> list[int]:
    return [int(line[1:].partition(":")[0]) for line in answer.splitlines()]


# --- as a command ---


def ran(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_an_answer_is_on_stdout_and_a_refusal_on_stderr(code: Path) -> None:
    assert ran("read_file", json.dumps({"file_path": str(code), "limit": 1})) == (0, "L1: import os", "")
    assert ran("read_file", '{"file_path": "code.py"}') == (1, "", "file_path must be an absolute path, such as /mnt/data/code.py.\n")
    assert ran("fly", "{}")[0] == 2


# --- read_file ---

SLICES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "the whole": ({}, list(range(1, 18))),
    "from a line on": ({"offset": 16}, [16, 17]),
    "so many": ({"offset": 4, "limit": 2}, [4, 5]),
}


@pytest.mark.parametrize(("given", "expected"), SLICES.values(), ids=SLICES)
def test_lines_are_read_with_their_numbers(program: ModuleType, code: Path, given: dict[str, Any], expected: list[int]) -> None:
    assert numbers(program.read_file({"file_path": str(code), **given})) == expected


BLOCKS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "its own level and what opens it": ({"anchor_line": 12, "max_levels": 1}, [11, 12]),
    "two levels": ({"anchor_line": 12, "max_levels": 2}, [9, 10, 11, 12]),
    "all levels": ({"anchor_line": 12}, [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]),
    "from what opens it": ({"anchor_line": 5}, [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]),
    "two levels with what stands beside": (
        {"anchor_line": 12, "max_levels": 2, "include_siblings": True},
        [6, 7, 8, 9, 10, 11, 12, 13],
    ),
    "three levels, with decorator and comment": ({"anchor_line": 12, "max_levels": 3}, [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]),
    "three levels without them": (
        {"anchor_line": 12, "max_levels": 3, "include_header": False},
        [5, 6, 7, 8, 9, 10, 11, 12, 13],
    ),
    "at most so many lines": ({"anchor_line": 7, "max_lines": 3, "include_siblings": True}, [6, 7]),
    "one line": ({"anchor_line": 7, "max_lines": 1}, [7]),
}


@pytest.mark.parametrize(("options", "expected"), BLOCKS.values(), ids=BLOCKS)
def test_a_block_is_read_by_its_indentation(program: ModuleType, code: Path, options: dict[str, Any], expected: list[int]) -> None:
    answer = program.read_file({"file_path": str(code), "mode": "indentation", "indentation": options})
    assert numbers(answer) == expected


def test_the_anchor_is_the_offset_where_none_is_named(program: ModuleType, code: Path) -> None:
    answer = program.read_file({"file_path": str(code), "mode": "indentation", "offset": 17, "indentation": {"max_levels": 1}})
    assert numbers(answer) == [16, 17]


def test_a_block_ends_with_what_closes_it(program: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "code.c"
    path.write_text("int a;\n// Twice.\nint twice(int n) {\n  return 2 * n;\n}\n\nint b;\n")
    answer = program.read_file({"file_path": str(path), "mode": "indentation", "indentation": {"anchor_line": 4}})
    assert numbers(answer) == [2, 3, 4, 5]


UNREADABLE: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({"file_path": "/nowhere"}, "/nowhere: No such file or directory."),
    "a folder": ({"file_path": "/usr"}, "/usr: Is a directory."),
    "a device": ({"file_path": "/dev/zero"}, "/dev/zero is no regular file."),
    "a line beyond the end": ({"offset": 18}, "offset exceeds the length of the file, 17 lines."),
    "an anchor beyond the end": (
        {"mode": "indentation", "indentation": {"anchor_line": 99}},
        "anchor_line is outside of the file, which has 17 lines.",
    ),
}


@pytest.mark.parametrize(("given", "sentence"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_told(program: ModuleType, code: Path, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(program.Refused) as refused:
        program.read_file({"file_path": str(code), **given})
    assert str(refused.value) == sentence


def test_long_lines_are_cut_and_long_answers_say_where_to_go_on(program: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_text("y" * 600 + "\r\n" + "".join(f"{'x' * 390}\n" for _ in range(200)))
    answer = program.read_file({"file_path": str(path)}).splitlines()
    assert answer[0] == "L1: " + "y" * 500
    assert sum(map(len, answer)) < 41_000
    assert answer[-1] == f"[The answer is full, and the file has 201 lines: go on with offset {len(answer)}.]"
    rest = program.read_file({"file_path": str(path), "offset": len(answer)})
    assert rest.startswith(f"L{len(answer)}: xxx")


def test_bytes_that_are_no_text_and_no_bytes_at_all_are_read_too(program: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "odd"
    path.write_bytes(b"a\xff\n")
    assert program.read_file({"file_path": str(path)}) == "L1: a\ufffd"
    path.write_bytes(b"")
    assert program.read_file({"file_path": str(path)}) == "(the file is empty)"


def test_a_pipe_holds_nobody_up(program: ModuleType, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(program.Refused, match="no regular file"):
        program.read_file({"file_path": str(tmp_path / "pipe")})


# --- list_dir ---


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "src" / "deep" / "deeper").mkdir(parents=True)
    for name in ("b.txt", "a.txt", "src/main.py", "src/deep/leaf"):
        (root / name).write_text(name)
    (root / "link").symlink_to("a.txt")
    os.mkfifo(root / "pipe")
    (root / "two\nlines").touch()
    return root


def test_a_folder_is_listed_with_its_levels_and_marks(program: ModuleType, tree: Path) -> None:
    assert program.list_dir({"dir_path": str(tree)}).splitlines() == [
        f"Absolute path: {tree}",
        "a.txt",
        "b.txt",
        "link@",
        "pipe?",
        "src/",
        "  deep/",
        "  main.py",
        "two\\nlines",
    ]
    deeper = program.list_dir({"dir_path": str(tree), "depth": 3, "offset": 6, "limit": 3}).splitlines()
    assert deeper[1:] == ["  deep/", "    deeper/", "    leaf", "More than 3 entries found: go on with offset 9."]
    assert program.list_dir({"dir_path": str(tree), "depth": 1, "offset": 6}).splitlines()[1:] == ["two\\nlines"]


NO_FOLDERS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({"dir_path": "/nowhere"}, "/nowhere: No such file or directory."),
    "a file": ({"dir_path": "/etc/passwd"}, "/etc/passwd: Not a directory."),
    "a path that is not absolute": ({"dir_path": "src"}, "dir_path must be an absolute path, such as /mnt/data/src."),
    "an entry beyond the end": ({"offset": 9}, "offset exceeds the number of entries, 8."),
}


@pytest.mark.parametrize(("given", "sentence"), NO_FOLDERS.values(), ids=NO_FOLDERS)
def test_what_cannot_be_listed_is_told(program: ModuleType, tree: Path, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(program.Refused) as refused:
        program.list_dir({"dir_path": str(tree), **given})
    assert str(refused.value) == sentence


# --- grep_files ---


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    root = tmp_path / "sources"
    (root / ".git").mkdir(parents=True)
    (root / "lib").mkdir()
    for age, name in enumerate(("new.py", "lib/middle.py", "old.ts", ".git/hidden.py", "lib/binary.py")):
        (root / name).write_bytes(b"def find_me():\n" + (b"\0" if "binary" in name else b""))
        os.utime(root / name, (1_000_000 - age, 1_000_000 - age))
    (root / "other.py").write_text("nothing")
    return root


GREPS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "all, the newest first": ({}, ["new.py", "lib/middle.py", "old.ts"]),
    "those of a kind": ({"include": "*.py"}, ["new.py", "lib/middle.py"]),
    "those of two kinds": ({"include": "*.{ts,md}"}, ["old.ts"]),
    "a part of the tree": ({"path": "lib"}, ["lib/middle.py"]),
    "a bound": ({"limit": 1}, ["new.py", "More than 1 files match."]),
    "a regular expression": ({"pattern": r"^def\s+find_\w+\("}, ["new.py", "lib/middle.py", "old.ts"]),
    "none": ({"pattern": "find_you"}, ["No matches found."]),
}


@pytest.mark.parametrize(("given", "expected"), GREPS.values(), ids=GREPS)
def test_files_are_found_by_what_they_hold(program: ModuleType, sources: Path, given: dict[str, Any], expected: list[str]) -> None:
    where = str(sources / given.get("path", "."))
    answer = program.grep_files({"pattern": "find_me", **given, "path": where}).splitlines()
    assert [line.removeprefix(f"{sources}/") for line in answer] == expected


def test_a_walk_finds_what_ripgrep_does(program: ModuleType, sources: Path) -> None:
    found = program.by_walking("find_me", None, str(sources))
    assert [os.path.relpath(path, sources) for path in found] == ["new.py", "lib/middle.py", "old.ts"]
    ripgrep = shutil.which("rg")
    if ripgrep is not None:
        assert program.by_ripgrep(ripgrep, "find_me", None, str(sources)) == found


def test_what_cannot_be_looked_for_is_told(program: ModuleType, sources: Path) -> None:
    with pytest.raises(program.Refused, match=r"no regular expression|rg failed"):
        program.grep_files({"pattern": "(", "path": str(sources)})
    with pytest.raises(program.Refused, match="No such file"):
        program.grep_files({"pattern": "x", "path": "/nowhere"})


# --- view_image ---

KINDS = {
    "image/png": b"\x89PNG\r\n\x1a\n....",
    "image/jpeg": b"\xff\xd8\xff\xe0....",
    "image/gif": b"GIF89a....",
    "image/webp": b"RIFF\x00\x00\x00\x00WEBP....",
}
VASTLY = {f"a vast {kind}": (f"image/{kind}", content) for kind, content in VAST.items()}
"""Nothing is decoded, so that what a head says of its pixels costs nothing."""


@pytest.mark.parametrize(("kind", "content"), [*KINDS.items(), *VASTLY.values()], ids=[*KINDS, *VASTLY])
def test_a_picture_is_known_by_its_beginning(program: ModuleType, tmp_path: Path, kind: str, content: bytes) -> None:
    path = tmp_path / "picture"
    path.write_bytes(content)
    answer = json.loads(program.view_image({"path": str(path), "start": 0}))
    assert answer == {"mime": kind, "size": len(content), "data": base64.b64encode(content).decode()}


def test_a_picture_comes_in_pieces_that_fit_together(program: ModuleType, tmp_path: Path) -> None:
    content = KINDS["image/png"] + os.urandom(program.PIECE_BYTES)
    (tmp_path / "large.png").write_bytes(content)
    data = ""
    for start in (0, program.PIECE_BYTES):
        data += json.loads(program.view_image({"path": str(tmp_path / "large.png"), "start": start}))["data"]
    assert base64.b64decode(data) == content


def test_what_is_no_picture_is_told(program: ModuleType, code: Path) -> None:
    with pytest.raises(program.Refused, match=r"no PNG, JPEG, GIF or WebP image"):
        program.view_image({"path": str(code), "start": 0})
