"""The ``apply_patch`` command of the sandbox, run as a command."""

import difflib
import os
import stat
import subprocess
import sys
import tempfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.unit.sandbox.support import EXEC_SERVER

COMMAND = EXEC_SERVER.parent / "bin" / "apply_patch"


def apply(directory: Path, patch: str, *, as_argument: bool = False) -> subprocess.CompletedProcess[str]:
    arguments = [patch] if as_argument else []
    return subprocess.run(
        [sys.executable, str(COMMAND), *arguments],
        cwd=directory,
        input="" if as_argument else patch,
        capture_output=True,
        text=True,
        check=False,
    )


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"]) + "\n"


def files(directory: Path) -> dict[str, str]:
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("as_argument", [False, True])
def test_files_are_added_updated_moved_and_deleted_in_one_go(tmp_path: Path, as_argument: bool) -> None:
    (tmp_path / "update.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "move.txt").write_text("a\nb\n")
    (tmp_path / "delete.txt").write_text("gone\n")
    text = patch(
        "*** Add File: new/deep/file.txt",
        "+hello",
        "+",
        "+world",
        "*** Update File: update.txt",
        "@@",
        " one",
        "-two",
        "+2",
        "*** Update File: move.txt",
        "*** Move to: moved/there.txt",
        "@@ a",
        "-b",
        "+c",
        "*** Delete File: delete.txt",
    )
    result = apply(tmp_path, text, as_argument=as_argument)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == (
        "Success. Updated the following files:\nA new/deep/file.txt\nM update.txt\nM moved/there.txt\nD delete.txt\n"
    )
    assert files(tmp_path) == {
        "new/deep/file.txt": "hello\n\nworld\n",
        "update.txt": "one\n2\nthree\n",
        "moved/there.txt": "a\nc\n",
    }


UPDATES = {
    "a context line chooses among equal places": (
        "def a():\n    x\ndef b():\n    x\n",
        ["@@ def b():", "-    x", "+    y"],
        "def a():\n    x\ndef b():\n    y\n",
    ),
    "chunks follow each other": ("1\n2\n3\n4\n", ["@@", "-1", "+one", "@@", "-4", "+four"], "one\n2\n3\nfour\n"),
    "the first marker may be missing": ("1\n2\n", ["-2", "+two"], "1\ntwo\n"),
    "the end of the file is meant": ("x\nmid\nx\n", ["@@", "-x", "+last", "*** End of File"], "x\nmid\nlast\n"),
    "lines are only added: at the end": ("1\n", ["@@", "+2"], "1\n2\n"),
    "lines are added to an empty file": ("", ["@@", "+1"], "1\n"),
    "all lines go": ("1\n2\n", ["@@", "-1", "-2"], ""),
    "white space at line ends does not matter": ("a  \nb\n", ["@@", " a", "-b", "+c"], "a\nc\n"),
    "indentation is found by and by": ("    a\n    b\n", ["@@", " a", "-b", "+    c"], "a\n    c\n"),
    "typographic signs are found": ("say “hi” – now\n", ["@@", '-say "hi" - now', "+said"], "said\n"),
    "an empty line of context may have lost its space": ("a\n\nb\n", ["@@", " a", "", "-b", "+c"], "a\n\nc\n"),
    "a missing newline at the end is put there": ("a\nb", ["@@", "-b", "+c"], "a\nc\n"),
    "the empty line after the last newline is shown": ("a\nb\n", ["@@", " a", "-b", "+c", " "], "a\nc\n"),
    "empty lines between chunks are nothing": ("1\n2\n", ["@@", "-1", "+one", "", "@@", "-2", "+two"], "one\ntwo\n"),
}


@pytest.mark.parametrize("case", UPDATES)
def test_an_update(case: str, tmp_path: Path) -> None:
    before, lines, after = UPDATES[case]
    (tmp_path / "f").write_text(before)
    result = apply(tmp_path, patch("*** Update File: f", *lines))
    assert (result.returncode, result.stderr, (tmp_path / "f").read_text()) == (0, "", after)


REFUSALS = {
    "no beginning": ("x", "Invalid patch: The first line of the patch must be '*** Begin Patch'\n"),
    "no end": ("*** Begin Patch\n*** Delete File: f", "Invalid patch: The last line of the patch must be '*** End Patch'\n"),
    "an unknown header": (
        patch("*** Rename File: f"),
        "Invalid patch hunk on line 2: '*** Rename File: f' is not a valid hunk header. Valid hunk headers: '*** Add File: {path}', "
        "'*** Delete File: {path}', '*** Update File: {path}'\n",
    ),
    "an empty update": (patch("*** Update File: f"), "Invalid patch hunk on line 2: Update file hunk for path 'f' is empty\n"),
    "a marker and nothing more": (
        patch("*** Update File: f", "@@"),
        "Invalid patch hunk on line 4: Update hunk does not contain any lines\n",
    ),
    "a line without a sign": (
        patch("*** Update File: f", "@@", "oops"),
        "Invalid patch hunk on line 4: Unexpected line found in update hunk: 'oops'. Every line should start with ' ' (context "
        "line), '+' (added line), or '-' (removed line)\n",
    ),
    "a second chunk without a marker": (
        patch("*** Update File: f", "@@", "-one", "oops"),
        "Invalid patch hunk on line 5: Expected update hunk to start with a @@ context marker, got: 'oops'\n",
    ),
    "lines that are not there": (
        patch("*** Update File: f", "@@", " one", "-three"),
        "Failed to find expected lines in f:\none\nthree\n",
    ),
    "a context that is not there": (patch("*** Update File: f", "@@ def x", "-one"), "Failed to find context 'def x' in f\n"),
    "lines that are above the chunk before": (
        patch("*** Update File: f", "@@", "-two", "@@", "-one"),
        "Failed to find expected lines in f:\none\n",
    ),
    "the end of the file is elsewhere": (
        patch("*** Update File: f", "@@", "-one", "*** End of File"),
        "Failed to find expected lines in f:\none\n",
    ),
    "an update of no file": (
        patch("*** Update File: none", "@@", "-x"),
        "Failed to read file to update none: No such file or directory\n",
    ),
    "a deletion of no file": (patch("*** Delete File: none"), "Failed to delete file none: No such file or directory\n"),
    "an update of a deleted file": (
        patch("*** Delete File: f", "*** Update File: f", "@@", "-one"),
        "Failed to read file to update f: No such file or directory\n",
    ),
    "a file where a directory is": (patch("*** Add File: d", "+x"), "Failed to write {directory}/d: Is a directory\n"),
    "a directory where a file is": (patch("*** Add File: f/x", "+x"), "Failed to write {directory}/f: File exists\n"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refused_patch_changes_nothing(case: str, tmp_path: Path) -> None:
    text, message = REFUSALS[case]
    (tmp_path / "f").write_text("one\ntwo\n")
    (tmp_path / "d").mkdir()
    result = apply(tmp_path, text)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == message.replace("{directory}", str(tmp_path))
    assert files(tmp_path) == {"f": "one\ntwo\n"}


def test_a_late_refusal_undoes_what_would_have_worked(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("one\n")
    (tmp_path / "d").mkdir()
    good = ["*** Add File: new", "+x", "*** Update File: f", "@@", "-one", "+1"]
    for bad in (["*** Delete File: none"], ["*** Add File: d", "+x"], ["*** Add File: f/x", "+x"]):
        assert apply(tmp_path, patch(*good, *bad)).returncode == 1
        assert files(tmp_path) == {"f": "one\n"}


def test_a_patch_without_hunks_modifies_nothing(tmp_path: Path) -> None:
    result = apply(tmp_path, patch())
    assert (result.returncode, result.stderr) == (1, "No files were modified.\n")


def test_a_heredoc_that_came_along_as_text_is_taken_off(tmp_path: Path) -> None:
    result = apply(tmp_path, f"<<'EOF'\n{patch('*** Add File: f', '+x')}EOF\n", as_argument=True)
    assert result.returncode == 0
    assert files(tmp_path) == {"f": "x\n"}


def test_modes_links_and_other_bytes_are_kept(tmp_path: Path) -> None:
    (tmp_path / "real.sh").write_bytes(b"#!/bin/sh\n# \xff\necho a\n")
    (tmp_path / "real.sh").chmod(0o755)
    (tmp_path / "link.sh").symlink_to("real.sh")
    assert apply(tmp_path, patch("*** Update File: link.sh", "@@", "-echo a", "+echo b")).returncode == 0
    assert (tmp_path / "real.sh").read_bytes() == b"#!/bin/sh\n# \xff\necho b\n"
    assert stat.S_IMODE((tmp_path / "real.sh").stat().st_mode) == 0o755
    assert (tmp_path / "link.sh").is_symlink()
    assert apply(tmp_path, patch("*** Update File: real.sh", "*** Move to: bin/run")).returncode == 0
    assert stat.S_IMODE((tmp_path / "bin" / "run").stat().st_mode) == 0o755


def test_several_hunks_may_work_on_one_file(tmp_path: Path) -> None:
    text = patch(
        "*** Add File: f", "+a", "*** Update File: f", "@@", "-a", "+b", "*** Update File: f", "*** Move to: g", "@@", "-b", "+c"
    )
    assert apply(tmp_path, text).returncode == 0
    assert files(tmp_path) == {"g": "c\n"}


def test_wrong_use_is_told(tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, str(COMMAND), "a", "b"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr.splitlines()[0]) == (2, "Error: apply_patch accepts exactly one argument.")
    assert apply(tmp_path, "").returncode == 2


def load() -> ModuleType:
    loader = SourceFileLoader("apply_patch_under_test", str(COMMAND))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


apply_patch = load()
lines_of_text = st.lists(st.sampled_from(["a", "b", "  c", "d e", "", "+x", "-y", "@@ z", "*** End Patch?", "é"]), max_size=14)


def v4a(before: list[str], after: list[str], context: int) -> list[str]:
    """The update that leads from one text to the other, as a diff tool would write it."""
    written: list[str] = []
    for group in difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(context):
        written.append("@@")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                written += [f" {line}" for line in before[i1:i2]]
            else:
                written += [f"-{line}" for line in before[i1:i2]] + [f"+{line}" for line in after[j1:j2]]
    return written


@given(lines_of_text, lines_of_text)
def test_a_generated_edit_leads_from_one_text_to_the_other(before: list[str], after: list[str]) -> None:
    """With the whole file as context: less of it may be ambiguous, and then the first place counts."""
    assume(before != after)
    assume(before)
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "f")
        Path(path).write_text("".join(f"{line}\n" for line in before))
        change = apply_patch.Change()
        for hunk in apply_patch.parse(patch(f"*** Update File: {path}", *v4a(before, after, len(before)))):
            change.plan(hunk)
        change.write()
        assert Path(path).read_text() == "".join(f"{line}\n" for line in after)
        assert os.listdir(directory) == ["f"]


@given(st.lists(st.integers(0, 99), max_size=20, unique=True), st.integers(0, 3), st.data())
def test_small_contexts_suffice_where_lines_are_unique(numbers: list[int], context: int, data: st.DataObject) -> None:
    before = [f"line {number}" for number in range(100)]
    after = []
    for number, line in enumerate(before):
        change = data.draw(st.sampled_from(["keep", "drop", "replace", "insert"])) if number in numbers else "keep"
        after += {"keep": [line], "drop": [], "replace": [f"new {line}"], "insert": [line, f"after {line}"]}[change]
    assume(before != after)
    context = max(context, 1)  # an insertion without context goes to the end, by definition
    chunks = apply_patch.parse(patch("*** Update File: f", *v4a(before, after, context)))[0].chunks
    result = apply_patch.updated("".join(f"{line}\n" for line in before), "f", chunks)
    assert result == "".join(f"{line}\n" for line in after)


@given(st.text(max_size=200))
def test_no_text_breaks_the_parser(text: str) -> None:
    for candidate in (text, f"*** Begin Patch\n{text}\n*** End Patch"):
        try:
            apply_patch.parse(candidate)
        except apply_patch.PatchError as error:
            assert str(error)  # noqa: PT017
