"""Every locked package has a wheel for Linux on both processors: a machine without a compiler can install moorage."""

import subprocess
from pathlib import Path

import pytest
import uv

ROOT = Path(__file__).resolve().parents[2]
PLATFORMS = ("aarch64-manylinux_2_28", "x86_64-manylinux_2_28")
LOCKS = [
    str(lock.relative_to(ROOT)) for folder in ("requirements", "functions/sandbox") for lock in sorted((ROOT / folder).glob("*.txt"))
]
PURE_SOURCES = ("airspeed-ext", "crontab", "jsonpath-rw", "pyperclip")
"""Published without a wheel, for Python 3.11 and 3.12 at least, and built without a compiler."""


def unresolved(lock: Path, platform: str, folder: Path) -> str:
    """What uv says of a lock that cannot be installed there; empty for one that can. Without the index the test is skipped."""
    command = [uv.find_uv_bin(), "pip", "install", "--dry-run", "--quiet", "--target", str(folder), "--python-platform", platform]
    command += ["--python-version", "3.11", "--only-binary", ":all:", *(f"--no-binary={name}" for name in PURE_SOURCES)]
    done = subprocess.run([*command, "--require-hashes", "-r", str(lock)], capture_output=True, text=True, check=False)
    if "error sending request" in done.stderr or "Could not connect" in done.stderr:
        pytest.skip("the index of packages cannot be reached")
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_installs_without_a_compiler(lock: str, platform: str, tmp_path: Path) -> None:
    assert unresolved(ROOT / lock, platform, tmp_path) == ""


def test_a_package_without_a_wheel_would_have_been_found(tmp_path: Path) -> None:
    """This version was locked once, and needed a compiler on arm64."""
    lock = tmp_path / "lock.txt"
    lock.write_text(
        "wordllama==0.4.0.post1 --hash=sha256:133664bc6fd0c73c8a4350b075419329708ee1f17a21ee4bd3ee47b3b0a83bb5\n",
    )
    assert "has no usable wheels" in unresolved(lock, "aarch64-manylinux_2_28", tmp_path)
