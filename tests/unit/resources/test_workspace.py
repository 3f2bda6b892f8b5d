from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moorage import limits
from moorage.containers.store import ContainerFileRecord
from moorage.containers.workspace import Diff, absolute, diff, stamp_of, without
from moorage.sandbox.exec_client import FileListing, SandboxFile

Kind = Literal["file", "symlink", "other", "not_utf8"]


def there(path: str, mtime_ns: int = 1, inode: int = 1, size: int = 1, kind: Kind = "file") -> SandboxFile:
    return SandboxFile(path, size, mtime_ns, inode, kind)


def row(file: SandboxFile, incarnation: int = 1) -> ContainerFileRecord:
    """What stands in the table once a file has been stored."""
    return ContainerFileRecord(
        tenant_id="ten",
        container_id="cntr_1",
        path=absolute(file),
        bytes=file.size,
        created_at=0,
        source="assistant",
        sha256="00",
        key="k",
        staged_in=incarnation,
        stamp=stamp_of(file),
    )


def listing(*files: SandboxFile, is_complete: bool = True) -> FileListing:
    return FileListing(files, is_complete)


A, B = there("a", inode=1), there("b", inode=2)
A2 = replace(A, mtime_ns=2)
RENAMED = replace(A, path="c")
BIG = there("a", size=limits.ARTIFACT_BYTES_MAX + 1)
LINK = there("a", kind="symlink")
NOTE_BIG = f"Note: files over {limits.ARTIFACT_BYTES_MAX} bytes are not saved: /mnt/data/a."
NOTE_LINK = "Note: symbolic links are not saved: /mnt/data/a."
NOTE_MANY = f"Note: /mnt/data has more than {limits.SANDBOX_FILES_MAX} files; those beyond are not saved."


@pytest.mark.parametrize(
    ("found", "rows", "expected"),
    {
        "nothing anywhere": (listing(), [], Diff()),
        "unchanged": (listing(A, B), [row(A), row(B)], Diff()),
        "new": (listing(A, B), [row(A)], Diff(changed=(B,))),
        "changed": (listing(A2), [row(A)], Diff(changed=(A2,))),
        "removed": (listing(A), [row(A), row(B)], Diff(removed=(row(B),))),
        "renamed": (listing(RENAMED), [row(A)], Diff(renamed=((row(A), RENAMED),), removed=(row(A),))),
        "renamed over another": (
            listing(replace(A, path="b")),
            [row(A), row(B)],
            Diff(changed=(replace(A, path="b"),), removed=(row(A),)),
        ),
        "a hard link": (listing(A, RENAMED), [row(A)], Diff(changed=(RENAMED,))),
        "grown too large": (listing(BIG), [row(A)], Diff(removed=(row(A),), notes=(NOTE_BIG,))),
        "became a link": (listing(LINK), [row(A)], Diff(removed=(row(A),), notes=(NOTE_LINK,))),
        "not staged yet": (listing(), [row(A, incarnation=0)], Diff()),
        "not staged yet, with an older file in its place": (listing(A2), [row(A, incarnation=0)], Diff()),
        "missing from an incomplete listing": (listing(B, is_complete=False), [row(A), row(B)], Diff(notes=(NOTE_MANY,))),
        "a link in an incomplete listing": (
            listing(LINK, is_complete=False),
            [row(A)],
            Diff(removed=(row(A),), notes=(NOTE_LINK, NOTE_MANY)),
        ),
        "a name that cannot be asked for": (
            listing(there("b\ufffd", kind="not_utf8")),
            [],
            Diff(notes=("Note: names that are not UTF-8 are not saved: /mnt/data/b\ufffd.",)),
        ),
        "a name that is no text": (
            listing(there("\udcff")),
            [],
            Diff(notes=("Note: names that are not UTF-8 are not saved: /mnt/data/?.",)),
        ),
    }.values(),
    ids=str,
)
def test_a_workspace_is_compared_with_what_is_stored(found: FileListing, rows: list[ContainerFileRecord], expected: Diff) -> None:
    assert diff(found, rows, 1) == expected


def test_of_a_huge_tree_the_first_files_are_stored_and_the_rest_is_noted() -> None:
    files = [there(f"{n:06d}", inode=n) for n in range(100_000)]
    found = diff(listing(*files), [], 1)
    assert found.changed == tuple(files[: limits.ARTIFACTS_MAX])
    assert found.notes == (
        "Note: at most 10000 files are saved; not saved: /mnt/data/010000, /mnt/data/010001, /mnt/data/010002 and 89997 more.",
    )


def test_files_with_holes_are_stored_up_to_a_bound_of_all_together() -> None:
    """They take next to no room in the container."""
    count = limits.ARTIFACTS_BYTES_MAX // limits.ARTIFACT_BYTES_MAX
    sparse = [there(f"{n:03d}", inode=n, size=limits.ARTIFACT_BYTES_MAX) for n in range(count + 2)]
    small = there("z", inode=999, size=0)
    note = f"Note: at most {limits.ARTIFACTS_BYTES_MAX} bytes are saved of all files together; not saved: "
    at_once = diff(listing(*sparse, small), [], 1)
    assert at_once == Diff(changed=(*sparse[:count], small), notes=(note + "/mnt/data/040, /mnt/data/041.",))
    one_by_one = diff(listing(*sparse[: count + 1]), [row(file) for file in sparse[:count]], 1)
    assert one_by_one == Diff(notes=(note + "/mnt/data/040.",))


def test_a_stored_file_that_outgrows_the_total_bound_is_dropped() -> None:
    full = [
        there(f"{n:03d}", inode=n, size=limits.ARTIFACT_BYTES_MAX)
        for n in range(limits.ARTIFACTS_BYTES_MAX // limits.ARTIFACT_BYTES_MAX - 1)
    ]
    grown = [there(name, inode=1_000 + n, mtime_ns=2, size=limits.ARTIFACT_BYTES_MAX) for n, name in enumerate("xy")]
    rows = [row(file) for file in full] + [row(replace(file, mtime_ns=1, size=1)) for file in grown]
    found = diff(listing(*full, *grown), rows, 1)
    assert (found.changed, found.removed) == ((grown[0],), (rows[-1],))


def test_what_is_stored_already_keeps_its_place_in_a_full_container() -> None:
    stored = [there(f"z{n}", inode=n) for n in range(limits.ARTIFACTS_MAX)]
    found = diff(listing(*stored, there("a", inode=99_999)), [row(file) for file in stored], 1)
    assert (found.changed, found.removed) == ((), ())


class Weighed(SandboxFile):
    """Counts how often one file of a listing is compared with another."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Weighed.compared += 1
        return super().__eq__(other)

    __hash__ = SandboxFile.__hash__


def test_the_work_on_many_files_that_find_no_room_grows_with_their_number_alone() -> None:
    size = limits.ARTIFACT_BYTES_MAX
    fitting = limits.ARTIFACTS_BYTES_MAX // size
    files = [Weighed(f"{n:05}", size, 1, n, "file") for n in range(100 * fitting)]
    found = diff(listing(*files), [], 1)
    assert [file.path for file in found.changed] == [file.path for file in files[:fitting]]
    assert [file.path for file in without(files, found.changed)] == [file.path for file in files[fitting:]]
    assert Weighed.compared == 0


NAMES = st.sampled_from("abcdef")
TREES = st.dictionaries(NAMES, st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=6)


@settings(deadline=None)
@given(before=TREES, after=TREES)
def test_applying_a_difference_makes_the_table_equal_to_the_workspace(
    before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]
) -> None:
    rows = {row(file).path: row(file) for file in (there(name, *stat) for name, stat in before.items())}
    files = [there(name, *stat) for name, stat in after.items()]
    change = diff(listing(*files), list(rows.values()), 1)
    for gone in change.removed:
        del rows[gone.path]
    for file in (*change.changed, *(file for _, file in change.renamed)):
        rows[absolute(file)] = row(file)
    assert rows == {absolute(file): row(file) for file in files}
    assert all(old.stamp == stamp_of(file) for old, file in change.renamed)
