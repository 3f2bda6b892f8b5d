"""Logs are bounded, and a full disk is no reason to stop."""

from pathlib import Path

import pytest
from moorage import limits
from moorage.local.logs import RotatingFile, cut


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOCAL_LOG_BYTES_MAX", 100)


def test_a_file_is_put_aside_at_its_size_and_one_before_it_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "api.log"
    with RotatingFile(path) as file:
        for n in range(100):
            file.write(f"line {n:03}\n")
            file.flush()
    kept = (tmp_path / "api.log.1").read_text() + path.read_text()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["api.log", "api.log.1"]
    assert kept.endswith("line 099\n")
    assert len(kept) < 3 * 100
    assert kept.splitlines() == [f"line {n:03}" for n in range(100 - len(kept.splitlines()), 100)]


def test_a_file_of_another_process_is_emptied_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "emulator.log"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"x" * 101)
        cut(path)
        writer.write(b"more")
    assert (path.read_bytes(), (tmp_path / "emulator.log.1").read_bytes()) == (b"more", b"x" * 101)
    cut(path)
    assert path.read_bytes() == b"more"


def test_a_full_disk_costs_words_alone() -> None:
    with RotatingFile(Path("/dev/full")) as file:
        for _ in range(50):
            file.write("x" * 10_000)
            file.flush()
