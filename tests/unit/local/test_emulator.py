"""The process that holds the local tables and keys."""

import stat
from pathlib import Path

from moorage.local.emulator import Emulator


def test_a_folder_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with (tmp_path / "lock").open("w") as lock:
        emulator = Emulator(tmp_path, {}, lock)
        emulator.listener.close()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700
