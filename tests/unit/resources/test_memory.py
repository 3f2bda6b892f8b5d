import json
import subprocess
import sys

from tests.ministack import Ministack


def test_memory_stays_flat_while_a_large_file_goes_in_and_out(ministack: Ministack) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.unit.resources.large_file", ministack.endpoint, "96"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert json.loads(run.stdout)["growth_mib"] < 56
