"""llm: a question from the command line."""

import subprocess
import sys
from pathlib import Path

from moorage_script import KEY, MODEL, URL, expect, say, script

program = Path(sys.executable).parent / "llm"
command = [program, "openai", "endpoint", URL, script(say("from the command line")), "-m", MODEL, "--key", KEY, "--responses"]
done = subprocess.run(command, capture_output=True, text=True, timeout=60)
if done.returncode:
    raise SystemExit(done.stderr)
expect(done.stdout.strip(), "from the command line")
