"""The environments that are made on first use. The lock here names no package, so that nothing is downloaded."""

import threading
from pathlib import Path

import pytest
from moorage.errors import SettingsConflict
from moorage.local.children import prepare_environments
from moorage.local.environments import Environment, ensure


@pytest.fixture
def wanted(tmp_path: Path) -> Environment:
    lock = tmp_path / "toolbox.txt"
    lock.write_text("# nothing\n")
    return Environment("toolbox", lock, tmp_path / "cache" / "toolbox-1")


def names(wanted: Environment) -> list[str]:
    return sorted(path.name for path in wanted.folder.parent.iterdir())


def test_it_is_made_on_first_use_and_says_so_and_found_on_the_second(wanted: Environment, capfd: pytest.CaptureFixture[str]) -> None:
    assert not wanted.is_made
    assert ensure(wanted).is_made
    first, *_, last = capfd.readouterr().err.splitlines()
    assert first == f"moorage: Installing the packages that sandboxes offer into {wanted.folder} (once; 0 packages) ..."
    assert last.startswith("moorage: Installed the packages that sandboxes offer in ")
    made = (wanted.folder / ".done").stat()
    ensure(wanted)
    assert (wanted.folder / ".done").stat() == made
    assert capfd.readouterr().err == ""
    assert names(wanted) == ["toolbox-1", "toolbox-1.lock"]


def test_of_two_starts_at_once_one_makes_it_and_the_other_waits(wanted: Environment, capfd: pytest.CaptureFixture[str]) -> None:
    starts = [threading.Thread(target=ensure, args=[wanted]) for _ in range(2)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert wanted.is_made
    assert capfd.readouterr().err.count("Installing ") == 1


def test_what_an_interrupted_start_left_is_not_taken_for_whole(wanted: Environment) -> None:
    for left in (wanted.folder, wanted.folder.with_name("toolbox-1.new")):
        (left / "bin").mkdir(parents=True)
        (left / "bin" / "python").write_text("half")
        (left / "rubbish").touch()
    assert ensure(wanted).is_made
    assert not (wanted.folder / "rubbish").exists()
    assert names(wanted) == ["toolbox-1", "toolbox-1.lock"]


def test_it_is_made_anew_when_the_interpreter_under_it_is_gone(wanted: Environment) -> None:
    python = ensure(wanted).python
    python.unlink()
    python.symlink_to("/nowhere/python")
    assert not wanted.is_made
    assert ensure(wanted).is_made


def test_what_it_holds_can_be_read_by_the_sandboxes_users(wanted: Environment) -> None:
    folder = ensure(wanted).folder
    assert [path for path in (folder, *folder.rglob("*")) if not path.is_symlink() and path.stat().st_mode & 0o044 != 0o044] == []


def unknown(wanted: Environment, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """One that no index can serve."""
    monkeypatch.setenv("UV_OFFLINE", "1")
    wanted.lock.write_text(f"no-such-package==1.0 --hash=sha256:{'0' * 64}\n")
    return wanted


def test_what_cannot_be_installed_is_said_and_nothing_is_taken_for_whole(wanted: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    said = r"(?s)^The packages that sandboxes offer could not be installed: .*no-such-package.* once\.$"
    with pytest.raises(SettingsConflict, match=said):
        ensure(unknown(wanted, monkeypatch))
    assert not wanted.is_made


def test_a_stack_starts_without_the_toolbox_and_says_what_is_missing(
    wanted: Environment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found = unknown(wanted, monkeypatch)
    prepare_environments(lambda name: found)
    assert capfd.readouterr().err.endswith("Until then commands find Python without packages.\n")


def test_a_stack_with_allowed_domains_does_not_start_without_its_proxy(wanted: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_ALLOWED_EGRESS_DOMAINS", "example.com")
    found = unknown(wanted, monkeypatch)
    with pytest.raises(SettingsConflict):
        prepare_environments(lambda name: found)


def test_a_cache_that_cannot_be_written_is_named(wanted: Environment, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(SettingsConflict) as caught:
        ensure(wanted)
    assert str(caught.value) == (
        f"The packages that sandboxes offer cannot be kept in {tmp_path / 'cache'}: File exists. XDG_CACHE_HOME takes another folder."
    )
