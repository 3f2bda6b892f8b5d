"""``make fuzz``: schemathesis over our own OpenAPI document against the embedded stack.

No answer may be a 5xx, nor have a status that the document does not name. The seed is fixed, so that a finding comes again; give
another as the first argument, the number of requests for each operation as the second, and the seconds for the boundary values of the
document as the third: there are more of these than a run can send.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import moorage.tools.registry  # noqa: E402, F401  (the rooms declare their tools)
from moorage import __version__  # noqa: E402
from moorage.api.openapi import document  # noqa: E402

from tests.stack import Stack  # noqa: E402  (the folder of the tests is no package of this environment)

PROGRAM = ROOT / ".build" / "fuzz" / "bin" / "schemathesis"
_CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def main(seed: str = "1", examples: str = "250", boundary_seconds: str = "600") -> int:
    if not PROGRAM.exists():
        print("schemathesis is not installed; 'make fuzz' installs it where the network allows.")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the stack is stopped too
    with tempfile.TemporaryDirectory(prefix="moorage-fuzz-") as folder:
        path = Path(folder) / "openapi.json"
        path.write_text(json.dumps(document(__version__)))
        stack = Stack(Path(folder) / "state").start()
        command = [str(PROGRAM), "run", str(path), "--url", stack.url.removesuffix("/v1"), "-H", f"Authorization: Bearer {stack.key}"]
        command += ["--checks", _CHECKS, "--max-examples", examples, "--seed", seed, "--workers", "2", "--request-timeout", "30"]
        runs = (["--phases", "examples,coverage", "--max-time", boundary_seconds], ["--phases", "fuzzing,stateful"])
        try:
            return max(subprocess.run([*command, *run], env=os.environ | {"PYTHONPATH": ""}, cwd=folder).returncode for run in runs)
        finally:
            stack.stop()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
