import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ministack import Ministack


@pytest.mark.parametrize("is_on_aws", [True, False])
def test_memory_stays_flat_while_a_large_file_goes_in_and_out(ministack: Ministack, tmp_path: Path, is_on_aws: bool) -> None:
    place = ministack.endpoint if is_on_aws else str(tmp_path)
    run = subprocess.run(
        [sys.executable, "-m", "tests.unit.resources.large_file", place, "96"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert json.loads(run.stdout)["growth_mib"] < 56
