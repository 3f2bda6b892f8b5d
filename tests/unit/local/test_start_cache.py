"""What starts find out about this machine, and keep for later ones."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from moorage.local.start_cache import StartCache, identity_of, key_of, programs_on_disk

KEY, OTHER = key_of("this machine"), key_of("another machine")


def test_an_answer_is_found_with_its_own_key_alone(tmp_path: Path) -> None:
    cache = StartCache(tmp_path / "start")
    assert cache.find("programs", KEY) is None
    cache.keep("programs", KEY, b"python 3.11\n\0")
    assert (cache.find("programs", KEY), cache.find("programs", OTHER), cache.find("archive", KEY)) == (b"python 3.11\n\0", None, None)
    cache.keep("programs", OTHER, b"python 3.12")
    assert (cache.find("programs", KEY), cache.find("programs", OTHER)) == (None, b"python 3.12")
    assert [(path.name, path.stat().st_mode & 0o777) for path in (tmp_path / "start").iterdir()] == [("programs", 0o600)]


def test_without_a_folder_nothing_is_kept() -> None:
    cache = StartCache(None)
    cache.keep("programs", KEY, b"python 3.11")
    assert cache.find("programs", KEY) is None


def test_where_nothing_can_be_written_a_start_goes_on(tmp_path: Path) -> None:
    (tmp_path / "start").write_text("a file in the place of the folder")
    cache = StartCache(tmp_path / "start")
    cache.keep("programs", KEY, b"python 3.11")
    assert cache.find("programs", KEY) is None


def shared(path: Path) -> None:
    path.chmod(0o666)


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def half_written(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4] + bytes(4))


def made_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("change", [shared, linked, cut, half_written, made_a_folder])
def test_a_file_that_is_not_whole_or_that_others_may_have_made_is_no_answer(tmp_path: Path, change: Callable[[Path], None]) -> None:
    cache = StartCache(tmp_path)
    cache.keep("programs", KEY, b"python 3.11")
    change(tmp_path / "programs")
    assert cache.find("programs", KEY) is None


def test_a_program_that_is_replaced_is_another_one(tmp_path: Path) -> None:
    folder, real = tmp_path / "bin", tmp_path / "java-17"
    folder.mkdir()
    seen = [programs_on_disk(["java"], [str(folder)])]
    real.write_text("17")
    (folder / "java").symlink_to(real)
    seen.append(programs_on_disk(["java"], [str(folder)]))
    new = tmp_path / "new"
    new.write_text("18")
    os.utime(new, ns=(real.stat().st_atime_ns, real.stat().st_mtime_ns))
    new.replace(real)
    seen.append(programs_on_disk(["java"], [str(folder)]))
    assert seen[0][0] == (f"{folder}/java",)
    assert len({key_of(each) for each in seen}) == 3


def test_what_is_not_there_has_no_identity(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nothing")
    assert (identity_of(str(tmp_path / "missing")), identity_of(str(tmp_path / "dangling"))) == ((), ())
