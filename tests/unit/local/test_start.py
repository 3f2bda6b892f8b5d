"""The beginning of a stack's process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stack import ROOT, clean_environment

IMPORTED = """
import gc, runpy, sys

modules, late = sys.modules, []
gc.callbacks.append(lambda phase, info: late.append(phase) if "moorage.errors" in modules else None)
try:
    runpy.run_module("moorage.local.stack", run_name="__main__")
except SystemExit as end:
    print(end.code)
gc.callbacks.clear()
print(late)
modules["moorage.runtime"].relieve_collector()
print(gc.isenabled())
"""


LOADED = """
import moorage.local.server, moorage.local.step_worker, moorage.local.stack, sys
from moorage.runtime import build_runtime
from moorage.settings import Settings

build_runtime(Settings.from_environment())
print(*sys.modules)
"""
UNUSED = {"boto3", "s3transfer", "botocore.client", "cryptography", "httpcore", "lark", "numpy", "tokenizers", "yaml"}
"""What most stacks never use. AWS's SDK alone would take each process 9 MiB, and ``cryptography`` 5 MiB."""


def test_one_machine_starts_without_what_few_stacks_use(tmp_path: Path) -> None:
    settings = {
        "MOORAGE_STORE_DIR": str(tmp_path / "store"),
        "MOORAGE_EXECUTIONS_FILE": str(tmp_path / "executions.sqlite"),
        "MOORAGE_EGRESS_KEY": f"file:{tmp_path}/keys.json",
        "MOORAGE_MODELS_FILE": str(ROOT / "models.toml"),
        "MOORAGE_CONTENT_KEY": "00" * 32,
        "MOORAGE_PROVISIONER": "launcher",
        "MOORAGE_LAUNCHER_SOCKET": str(tmp_path / "launcher.sock"),
    }
    environment = clean_environment() | settings
    done = subprocess.run([sys.executable, "-c", LOADED], env=environment, capture_output=True, text=True, check=False)
    assert (UNUSED & set(done.stdout.split()), done.stderr) == (set(), "")


@pytest.mark.parametrize("copied", ["sys", "moorage.cli.main, moorage.cli.up, moorage.local.stack"], ids=["a program", "a copy"])
def test_the_owner_of_the_sandboxes_starts_without_the_store_and_the_wire(copied: str) -> None:
    """Also as a copy of the stack's process."""
    command = [sys.executable, "-c", f"import {copied}, moorage.local.launcher, sys; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (UNUSED | {"aws_lambda_powertools", "botocore", "fastapi", "pydantic", "sqlite3"}) & set(done.stdout.split()) == set()


def test_nobody_looks_for_garbage_before_a_stack_serves(tmp_path: Path) -> None:
    """One that ends after its imports, for a setting."""
    environment = {**os.environ, "MOORAGE_STATE_DIR": str(tmp_path), "MOORAGE_PORT": "0", "MOORAGE_WORKERS": "many"}
    done = subprocess.run([sys.executable, "-c", IMPORTED], env=environment, capture_output=True, text=True, check=True)
    refusal = "moorage: MOORAGE_WORKERS takes a number of processes from 1, not 'many'."
    assert done.stdout.splitlines() == [refusal, "[]", "True"]
