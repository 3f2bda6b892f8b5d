"""The environments that are made on first use. The lock here names no package, so that nothing is downloaded."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import uv
from moorage.errors import SettingsConflict
from moorage.local.children import old_parts, prepare_environments
from moorage.local.environments import ToolEnvironment, ensure
from moorage.local.resource_paths import IS_CHECKOUT, ROOT


@pytest.fixture
def wanted(tmp_path: Path) -> ToolEnvironment:
    lock = tmp_path / "toolbox.txt"
    lock.write_text("# nothing\n")
    return ToolEnvironment("toolbox", lock, tmp_path / "cache" / "toolbox-1")


def names(wanted: ToolEnvironment) -> list[str]:
    return sorted(path.name for path in wanted.folder.parent.iterdir())


def test_it_is_made_on_first_use_and_says_so_and_found_on_the_second(
    wanted: ToolEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
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


def test_of_two_starts_at_once_one_makes_it_and_the_other_waits(wanted: ToolEnvironment, capfd: pytest.CaptureFixture[str]) -> None:
    starts = [threading.Thread(target=ensure, args=[wanted]) for _ in range(2)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert wanted.is_made
    assert capfd.readouterr().err.count("Installing ") == 1


def test_what_an_interrupted_start_left_is_not_taken_for_whole(wanted: ToolEnvironment) -> None:
    for left in (wanted.folder, wanted.folder.with_name("toolbox-1.new")):
        (left / "bin").mkdir(parents=True)
        (left / "bin" / "python").write_text("half")
        (left / "rubbish").touch()
    assert ensure(wanted).is_made
    assert not (wanted.folder / "rubbish").exists()
    assert names(wanted) == ["toolbox-1", "toolbox-1.lock"]


def test_it_is_made_anew_when_the_interpreter_under_it_is_gone(wanted: ToolEnvironment) -> None:
    python = ensure(wanted).python
    python.unlink()
    python.symlink_to("/nowhere/python")
    assert not wanted.is_made
    assert ensure(wanted).is_made


def test_what_it_holds_can_be_read_by_the_sandboxes_users(wanted: ToolEnvironment) -> None:
    folder = ensure(wanted).folder
    assert [path for path in (folder, *folder.rglob("*")) if not path.is_symlink() and path.stat().st_mode & 0o044 != 0o044] == []


def test_the_egress_proxys_python_is_a_new_one_where_there_is_one(wanted: ToolEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    of_the_proxy = ToolEnvironment("egress", wanted.lock, wanted.folder)
    made = ensure(of_the_proxy)
    asked = [uv.find_uv_bin(), "python", "find", ">=3.12,<3.14"]
    is_there = subprocess.run(asked, capture_output=True, check=False).returncode == 0
    assert made.version >= (3, 12) if is_there else made.version == sys.version_info[:2]


@pytest.mark.parametrize(("version", "is_said"), [("3.11.7", True), ("3.12.0", False), ("3.13.1", False)])
def test_an_old_python_under_the_egress_proxy_is_said_at_start(version: str, is_said: bool, wanted: ToolEnvironment) -> None:
    wanted.folder.mkdir(parents=True)
    (wanted.folder / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion_info = {version}\n")
    note = old_parts(ToolEnvironment("egress", wanted.lock, wanted.folder))
    assert ("older versions of mitmproxy, h2, h11 and brotli" in note) == is_said
    assert (str(wanted.folder) in note) == is_said


def unknown(wanted: ToolEnvironment, monkeypatch: pytest.MonkeyPatch) -> ToolEnvironment:
    """One that no index can serve."""
    monkeypatch.setenv("UV_OFFLINE", "1")
    wanted.lock.write_text(f"no-such-package==1.0 --hash=sha256:{'0' * 64}\n")
    return wanted


def test_what_cannot_be_installed_is_said_and_nothing_is_taken_for_whole(
    wanted: ToolEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = r"(?s)^The packages that sandboxes offer could not be installed: .*no-such-package.* Behind a proxy .*UV_SYSTEM_CERTS=1\.$"
    with pytest.raises(SettingsConflict, match=said):
        ensure(unknown(wanted, monkeypatch))
    assert not wanted.is_made


def test_a_stack_starts_without_the_toolbox_and_says_what_is_missing(
    wanted: ToolEnvironment, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found = unknown(wanted, monkeypatch)
    prepare_environments(lambda name: found)
    assert capfd.readouterr().err.endswith("Until then commands find Python without packages.\n")


def test_a_stack_with_allowed_domains_does_not_start_without_its_proxy(
    wanted: ToolEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOORAGE_ALLOWED_EGRESS_DOMAINS", "example.com")
    found = unknown(wanted, monkeypatch)
    with pytest.raises(SettingsConflict):
        prepare_environments(lambda name: found)


def test_a_cache_that_cannot_be_written_is_named(wanted: ToolEnvironment, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(SettingsConflict) as caught:
        ensure(wanted)
    assert str(caught.value) == (
        f"The packages that sandboxes offer cannot be kept in {tmp_path / 'cache'}: File exists. XDG_CACHE_HOME takes another folder."
    )


@pytest.mark.skipif(not IS_CHECKOUT, reason="only a checkout has a Makefile")
def test_make_test_is_linters_types_and_tests() -> None:
    command = ["make", "--no-print-directory", "--dry-run", "test"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # of the make that runs the tests
    steps = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=True).stdout.splitlines()
    before = ("pip install", "uv venv", "--collect")  # what a clone lacks, or has of an older day
    wanted = [step for step in steps if ".venv/bin/" in step and not any(word in step for word in before)]
    asked = [step.partition(".venv/bin/")[2].partition(" -n ")[0] for step in wanted]
    assert asked[-5:-1] == [
        "ruff check .",
        "ruff format --check .",
        "mypy",
        "mypy --config-file functions/egress_proxy/mypy.ini --python-executable .venv-egress/bin/python functions/egress_proxy",
    ]
    assert asked[-1] == "python -m pytest"


@pytest.mark.skipif(not IS_CHECKOUT, reason="only a checkout has a Makefile")
def test_make_says_what_it_installs_before_it_does() -> None:
    """Each takes a while, and nobody should have to guess whether it hangs."""
    command = ["make", "--no-print-directory", "--dry-run", "--always-make", "setup-dev"]
    steps = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\ntouch ")
    long = [step for step in steps if "pip install" in step or "-m venv" in step]
    assert len(long) == 3
    for step in long:
        assert step.index("echo ") < min(step.find(word) for word in ("pip install", "-m venv") if word in step)
