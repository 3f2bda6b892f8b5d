"""The beginning of a stack's process."""

import os
import subprocess
import sys
from pathlib import Path

IMPORTED = """
import gc, runpy, sys

modules, late = sys.modules, []
gc.callbacks.append(lambda phase, info: late.append(phase) if "moorage.errors" in modules else None)
try:
    runpy.run_module("moorage.local.stack", run_name="__main__")
except SystemExit:
    pass
gc.callbacks.clear()
print(late)
modules["moorage.runtime"].relieve_collector()
print(gc.isenabled())
"""


def test_nobody_looks_for_garbage_before_a_stack_serves(tmp_path: Path) -> None:
    """One that ends after its imports, for a folder whose path is too long."""
    environment = {**os.environ, "MOORAGE_STATE_DIR": str(tmp_path / ("long" * 30))}
    done = subprocess.run([sys.executable, "-c", IMPORTED], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "True"]
