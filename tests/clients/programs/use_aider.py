"""Aider: ``aider --message`` answers a question and edits a file, by Responses and by Chat Completions."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from moorage_script import KEY, MODEL, URL, expect, expect_in, say, script

EDIT = "notes.txt\n<<<<<<< SEARCH\nhello\n=======\ngoodbye\n>>>>>>> REPLACE\n"
KNOWN = {"max_input_tokens": 128000, "max_output_tokens": 4096, "litellm_provider": "openai", "mode": "chat"}
OPTIONS = (
    "--no-analytics --no-check-update --no-show-release-notes --no-show-model-warnings --no-git --no-gitignore --no-detect-urls "
    "--disable-playwright --no-suggest-shell-commands --no-auto-lint --map-tokens 0 --no-pretty --no-fancy-input --yes-always "
    "--edit-format diff"
)


def aider(folder: Path, model: str, words: str) -> str:
    command = [sys.executable, "-m", "aider", "--model", model, "--weak-model", model, *OPTIONS.split(), "--message", words]
    done = subprocess.run(
        [*command, "--model-metadata-file", str(folder / "models.json"), "notes.txt"],
        cwd=folder / "work",
        env=os.environ
        | {"HOME": str(folder), "OPENAI_API_BASE": URL, "OPENAI_API_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )
    if done.returncode:
        raise SystemExit(f"{model}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


for model in (f"openai/responses/{MODEL}", f"openai/{MODEL}"):
    with tempfile.TemporaryDirectory(prefix="aider-", dir=os.environ.get("MOORAGE_CLIENTS_DIR")) as name:
        folder = Path(name)
        (folder / "work").mkdir()
        notes = folder / "work" / "notes.txt"
        notes.write_text("hello\n")
        (folder / "models.json").write_text(json.dumps({model: KNOWN}))  # else it asks the internet about its model
        expect_in("one two three", aider(folder, model, script(say("one two three"))))
        expect(notes.read_text(), "hello\n")
        output = aider(folder, model, script(say(EDIT)))
        expect_in("Applied edit to notes.txt", output)
        expect(notes.read_text(), "goodbye\n")
