"""Syntheses of the app, all of a test process in one process of their own.

To read the CDK takes ten seconds of a core, and to use it two: a process for each synthesis would cost minutes. As a program it
answers each line (a context, and an output, region and account for it) with one ``{"returncode": ..., "stderr": ...}``: those of
``python -m infra.app``.
"""

import atexit
import json
import os
import subprocess
import sys
import traceback
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
REGION: Final = "us-east-1"


@dataclass(frozen=True)
class Done:
    """How a synthesis ended, as its process would tell."""

    returncode: int
    stderr: str


def environment() -> dict[str, str]:
    """Of a synthesis: that of no account."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_"))}
    silenced = {
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "1",
        "JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION": "1",
    }
    return mine | silenced | {"CDK_DEFAULT_REGION": REGION}


def context_of(settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**json.loads((ROOT / "cdk.json").read_text())["context"], "moorage": settings, **more}


def program(context: dict[str, Any], output: Path) -> Done:
    """In a process of its own, as ``cdk`` does it."""
    places = {"CDK_OUTDIR": str(output), "CDK_CONTEXT_JSON": json.dumps(context)}
    command = [sys.executable, "-m", "infra.app"]
    done = subprocess.run(command, cwd=ROOT, env=environment() | places, capture_output=True, text=True, check=False, timeout=600)
    return Done(done.returncode, done.stderr)


def synthesise(context: dict[str, Any], output: Path, region: str = REGION, account: str | None = None) -> Done:
    """``account`` is one whose zones are known; they are part of the context then."""
    synthesiser = _started()
    assert synthesiser.stdin is not None
    assert synthesiser.stdout is not None
    synthesiser.stdin.write(json.dumps({"context": context, "output": str(output), "region": region, "account": account}) + "\n")
    synthesiser.stdin.flush()
    return Done(**json.loads(synthesiser.stdout.readline()))


@cache
def _started() -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.infra.synthesis"],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(_end, process)
    return process


def _end(process: "subprocess.Popen[str]") -> None:
    process.communicate()  # It ends at the end of its input.


def _serve(answers: IO[str]) -> None:
    from infra.app import synthesise as synthesise_app
    from infra.config import ConfigError

    for line in sys.stdin:
        asked = json.loads(line)
        returncode, stderr = 0, ""
        os.environ.pop("CDK_DEFAULT_ACCOUNT", None)
        os.environ |= {"CDK_DEFAULT_REGION": asked["region"], **({"CDK_DEFAULT_ACCOUNT": asked["account"]} if asked["account"] else {})}
        try:
            synthesise_app(asked["context"], asked["output"])
        except ConfigError as error:
            returncode, stderr = 1, str(error)
        except Exception:
            returncode, stderr = 1, traceback.format_exc()
        print(json.dumps({"returncode": returncode, "stderr": stderr}), file=answers, flush=True)


if __name__ == "__main__":
    # What the CDK prints is no answer.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        _serve(answers)
