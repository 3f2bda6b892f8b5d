"""pi: ``pi -p`` edits a file with its bash tool."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from moorage_script import KEY, MODEL, URL, call, expect_in, say, script

WORDS = script(call("bash", command="sed -i s/hello/goodbye/ notes.txt && cat notes.txt"), say("It says: {{output}}"))
MODELS = {
    "providers": {
        "moorage": {
            "baseUrl": URL,
            "api": "openai-responses",
            "apiKey": KEY,
            "models": [
                {
                    "id": MODEL,
                    "name": MODEL,
                    "reasoning": False,
                    "input": ["text"],
                    "contextWindow": 128000,
                    "maxTokens": 4096,
                    "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
                }
            ],
        }
    }
}

with tempfile.TemporaryDirectory(prefix="pi-", dir=os.environ.get("MOORAGE_CLIENTS_DIR")) as folder:
    home, work = Path(folder) / "home", Path(folder) / "work"
    (home / ".pi" / "agent").mkdir(parents=True)
    work.mkdir()
    (home / ".pi" / "agent" / "models.json").write_text(json.dumps(MODELS))
    (work / "notes.txt").write_text("hello\n")
    done = subprocess.run(
        [sys.argv[1], "--provider", "moorage", "--model", MODEL, "-p", WORDS],
        cwd=work,
        env=os.environ | {"HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )
    if done.returncode or (work / "notes.txt").read_text() != "goodbye\n":
        raise SystemExit(f"exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    expect_in("It says:", done.stdout)
