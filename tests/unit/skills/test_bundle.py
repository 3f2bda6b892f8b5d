"""Bundles: the same from a zip and from files, and a sentence for everything that is none."""

import io
import re
import stat
import struct
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moorage import limits
from moorage.skills import bundle
from moorage.skills.bundle import BundleFile
from moorage.skills.front_matter import SkillProblem

from tests.unit.skills.archives import MANIFEST, skill, zip_of


def refusal(data: bytes) -> str:
    with pytest.raises(SkillProblem) as problem:
        bundle.of_zip(data)
    return str(problem.value)


def test_a_bundle_is_the_same_however_it_was_sent() -> None:
    files = skill(scripts__run=b"#!/bin/sh\necho", data=b"x" * 1000)
    zipped = bundle.of_zip(zip_of(files))
    assert bundle.of_zip(zip_of(dict(reversed(files.items())), method=zipfile.ZIP_STORED)) == zipped
    assert bundle.of_files((name.replace("tables/", "another-name/"), content) for name, content in files.items()) == zipped
    assert (zipped.name, zipped.description, zipped.files) == ("make-tables", "Makes tables.", 3)
    assert list(bundle.unpacked(zipped.archive)) == [
        BundleFile("SKILL.md", MANIFEST),
        BundleFile("data.txt", b"x" * 1000),
        BundleFile("scripts/run.txt", b"#!/bin/sh\necho", is_executable=True),
    ]
    assert bundle.of_zip(zipped.archive) == zipped


def test_a_mode_and_every_byte_make_another_bundle() -> None:
    modes = {"tables/data.txt": stat.S_IFREG | 0o755}
    digests = {
        bundle.of_zip(zip_of(skill(data=b"a"))).digest,
        bundle.of_zip(zip_of(skill(data=b"b"))).digest,
        bundle.of_zip(zip_of(skill(data=b"a"), modes=modes)).digest,
        bundle.of_zip(zip_of(skill(datum=b"a"))).digest,
    }
    assert len(digests) == 4


def test_what_macos_adds_is_left_out() -> None:
    junk = {"__MACOSX/tables/._SKILL.md": b"x", "tables/.DS_Store": b"x"}
    assert bundle.of_zip(zip_of(skill() | junk)) == bundle.of_zip(zip_of(skill()))


def test_documents_that_are_zips_are_welcome() -> None:
    document = zip_of({"word/document.xml": b"<w/>"})
    assert bundle.of_zip(zip_of(skill(**{"template.docx": document}))).files == 2


NAMES = {
    "absolute": ("/tables/a", "it is absolute"),
    "drive": ("C:/a", "it is absolute"),
    "up": ("tables/../../a", "it leads out of the folder"),
    "dot": ("tables/./a", "it has an empty part or '.'"),
    "empty part": ("tables//a", "it has an empty part or '.'"),
    "backslash": ("tables\\a", "it has a backslash; folders are separated by '/'"),
    "control": ("tables/a\x1b[2J", "it has a control character"),
    "long part": (f"tables/{'a' * 256}", "a part of it has more than 255 bytes"),
    "long path": ("tables/" + "/".join(["a" * 200] * 6), "it has more than 1024 bytes"),
}


@pytest.mark.parametrize(("name", "reason"), NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("sent", ["zip", "files"])
def test_a_name_that_could_lead_anywhere_else_is_refused(name: str, reason: str, sent: str) -> None:
    files = skill() | {name: b"x"}
    with pytest.raises(SkillProblem) as problem:
        _ = bundle.of_zip(zip_of(files)) if sent == "zip" else bundle.of_files(files.items())
    assert str(problem.value).endswith(f"is not allowed: {reason}.")
    assert str(problem.value).isprintable()


def test_a_name_with_a_null_byte_is_refused() -> None:
    data = zip_of(skill(abc=b"x")).replace(b"tables/abc.txt", b"tables/a\0c.txt")
    assert refusal(data) == "The name 'tables/a�c.txt' is not allowed: it has a control character."


def test_a_name_of_another_encoding_is_refused() -> None:
    data = zip_of(skill(abc=b"x")).replace(b"tables/abc.txt", b"tables/a\xe9c.txt")
    assert refusal(data) == "The name 'tables/a\ufffdc.txt' is not UTF-8; use a tool that writes UTF-8 names."


def test_names_in_utf_8_need_no_mark_as_finder_writes_them() -> None:
    names = zip_of(skill(übersicht=b"x"))
    unmarked = re.sub(rb"(PK\x03\x04..)..|(PK\x01\x02....)..", rb"\1\2\0\0", names, flags=re.DOTALL)
    assert (names != unmarked, bundle.of_zip(unmarked)) == (True, bundle.of_zip(names))


KINDS = {
    "link": (stat.S_IFLNK, "a symbolic link"),
    "pipe": (stat.S_IFIFO, "a pipe"),
    "socket": (stat.S_IFSOCK, "a socket"),
    "device": (stat.S_IFCHR, "a device"),
    "disk": (stat.S_IFBLK, "a device"),
}


@pytest.mark.parametrize(("kind", "called"), KINDS.values(), ids=KINDS)
def test_what_is_neither_file_nor_folder_is_refused(kind: int, called: str) -> None:
    data = zip_of(skill(passwd=b"/etc/passwd"), modes={"tables/passwd.txt": kind | 0o777})
    assert refusal(data) == f"'tables/passwd.txt' is {called}; a skill has files and folders only."


def test_an_encrypted_file_is_refused() -> None:
    data = bytearray(zip_of(skill()))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.index(signature) + offset
        data[place : place + 2] = struct.pack("<H", struct.unpack_from("<H", data, place)[0] | 1)
    assert refusal(bytes(data)) == "'tables/SKILL.md' is encrypted."


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=["bzip2", "lzma"])
def test_other_compressions_are_refused(method: int) -> None:
    assert refusal(zip_of(skill(), method=method)) == (
        "'tables/SKILL.md' is compressed by a method that is not supported; use deflate."
    )


ONE_FOLDER = "The bundle must have a single top-level folder that holds all files, such as 'my-skill/SKILL.md'."
SHAPES: dict[str, tuple[dict[str, bytes], str]] = {
    "nothing": ({}, "The bundle has no files."),
    "no folder": ({"SKILL.md": MANIFEST}, ONE_FOLDER),
    "two folders": (skill() | {"more/a": b"x"}, ONE_FOLDER),
    "no SKILL.md": ({"tables/README.md": MANIFEST}, "The bundle has no SKILL.md."),
    "two of them": (
        skill(**{"docs__skill.MD": MANIFEST}),
        "The bundle must have exactly one SKILL.md, and has SKILL.md, docs/skill.MD.",
    ),
    "too deep": (
        {"tables/docs/SKILL.md": MANIFEST},
        "SKILL.md must lie directly in the top-level folder, and not at 'docs/SKILL.md'.",
    ),
    "case": (skill(readme=b"x") | {"tables/README.txt": b"y"}, "'README.txt' and 'readme.txt' are the same name on some file systems."),
    "composed": (
        skill() | {"tables/é": b"x", "tables/e\u0301": b"y"},
        "'e\u0301' and 'é' are the same name on some file systems.",
    ),
    "file and folder": (skill() | {"tables/a": b"x", "tables/a/b": b"y"}, "'a' is a file, and 'a/b' needs a folder of that name."),
    "zip": (skill(**{"inner.zip": b"x"}), "'tables/inner.zip' is a zip file inside the bundle; unpack it into the folder."),
    "hidden zip": (
        skill(**{"inner.dat": zip_of({"a": b"x"})}),
        "'tables/inner.dat' is a zip file inside the bundle; unpack it into the folder.",
    ),
    "front matter": (
        {"tables/SKILL.md": b"# How"},
        "SKILL.md must begin with front matter: a line '---', 'name: ...', 'description: ...', and a line '---'.",
    ),
}


@pytest.mark.parametrize(("files", "sentence"), SHAPES.values(), ids=SHAPES)
def test_a_bundle_of_another_shape_is_refused(files: dict[str, bytes], sentence: str) -> None:
    assert refusal(zip_of(files)) == sentence


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_same_name_twice_is_refused() -> None:
    buffer = io.BytesIO(zip_of(skill()))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("tables/SKILL.md", MANIFEST)
    assert refusal(buffer.getvalue()) == "'SKILL.md' and 'SKILL.md' are the same name on some file systems."


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    one = zip_of(skill(zeros=b"\0" * (limits.SKILL_FILE_BYTES_MAX + 1)))
    assert refusal(one) == "'tables/zeros.txt' has 26214401 bytes; at most 26214400 are allowed for a file."
    many = zip_of(skill(**{f"zeros{number}": b"\0" * (20 * limits.MIB) for number in range(7)}))
    assert len(many) < limits.MIB
    assert refusal(many) == "The files have 146800699 bytes in all; at most 134217728 are allowed."


def test_a_size_that_lies_is_found_out() -> None:
    data = bytearray(zip_of(skill(zeros=b"\0" * 100_000)))
    place = data.rindex(b"PK\x01\x02") + 24
    assert struct.unpack_from("<I", data, place) == (100_000,)
    data[place : place + 4] = struct.pack("<I", 10)
    assert refusal(bytes(data)).startswith("The zip file cannot be read: Bad CRC-32")


def test_numbers_are_bounded() -> None:
    files = skill(**{f"f{number}": b"x" for number in range(limits.SKILL_FILES_MAX)})
    assert refusal(zip_of(files)) == "The bundle has 501 files; at most 500 are allowed."
    folders = {f"tables/{number}/": b"" for number in range(limits.SKILL_ZIP_ENTRIES_MAX)}
    assert refusal(zip_of(skill() | folders)) == "The zip file has 1001 entries; at most 1000 are allowed."
    assert refusal(b"\0" * (limits.SKILL_ZIP_BYTES_MAX + 1)) == "The zip file has 52428801 bytes; at most 52428800 are allowed."


@pytest.mark.parametrize("data", [b"", b"PK", b"no zip", zip_of(skill())[:-30], zip_of(skill())[40:]], ids=len)
def test_what_is_no_zip_is_refused(data: bytes) -> None:
    assert refusal(data).startswith("The zip file cannot be read: ")


GOOD = zip_of(skill(scripts__run=b"#!/bin/sh\n" * 50, data=b"abc" * 100))


@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=8))
def test_a_damaged_zip_is_a_bundle_or_a_sentence(changes: list[tuple[int, int]]) -> None:
    data = bytearray(GOOD)
    for place, value in changes:
        data[place] = value
    try:
        made = bundle.of_zip(bytes(data))
    except SkillProblem as problem:
        assert str(problem).isprintable()  # noqa: PT017
    else:
        assert all(entry.path and not entry.path.startswith("/") for entry in bundle.unpacked(made.archive))
        assert bundle.of_zip(made.archive) == made


@given(st.dictionaries(st.text(max_size=12), st.binary(max_size=40), max_size=6))
def test_files_of_any_name_are_a_bundle_or_a_sentence(files: dict[str, bytes]) -> None:
    try:
        made = bundle.of_files([("s/SKILL.md", MANIFEST), *((f"s/{name}", content) for name, content in files.items())])
    except SkillProblem as problem:
        assert str(problem).isprintable()  # noqa: PT017
    else:
        assert bundle.of_zip(made.archive) == made
