"""opencode: ``opencode run`` writes a file with its bash tool and reads it, by its provider ``@ai-sdk/openai``."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from moorage_script import KEY, MODEL, URL, call, expect, expect_in, say, script

CONFIG = {
    "autoupdate": False,
    "share": "disabled",
    "enabled_providers": ["moorage"],
    "small_model": f"moorage/{MODEL}",
    "permission": {"*": "allow"},
    "provider": {
        "moorage": {
            "npm": "@ai-sdk/openai",
            "options": {"baseURL": URL, "apiKey": KEY},
            "models": {MODEL: {"name": MODEL, "tool_call": True, "limit": {"context": 128000, "output": 4096}}},
        }
    },
}
OFFLINE = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "EXTERNAL_SKILLS", "CLAUDE_CODE", "SHARE")

with tempfile.TemporaryDirectory(prefix="opencode-", dir=os.environ.get("MOORAGE_CLIENTS_DIR")) as folder:
    home, work = Path(folder) / "home", Path(folder) / "work"
    for path in (home, work):
        path.mkdir()
    (work / "opencode.json").write_text(json.dumps(CONFIG))
    notes = work / "notes.txt"
    write = call("bash", command="echo goodbye > notes.txt", description="Writes notes.txt")
    read = call("read", filePath=str(notes))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    done = subprocess.run(
        [sys.argv[1], "run", "--model", f"moorage/{MODEL}", "--title", "notes"],
        cwd=work,
        env=environment | {"HOME": str(home), "PWD": str(work)} | {f"OPENCODE_DISABLE_{name}": "true" for name in OFFLINE},
        input=script(write, read, say("It says: {{output}}")),  # what it is given as an argument, it quotes
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode or not notes.exists():
        raise SystemExit(f"exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    expect(notes.read_text(), "goodbye\n")
    expect_in("It says:", done.stdout)
    expect_in("goodbye", done.stdout)
