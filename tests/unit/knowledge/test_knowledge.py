"""What a process has for searching files is made without keeping its event loop from others."""

import subprocess
import sys

_OPENS = """
import asyncio, sys, threading
from types import SimpleNamespace
from typing import Any

from moorage.knowledge.knowledge import Knowledge

importers = []


class Watch:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == "numpy":
            importers.append(threading.current_thread() is threading.main_thread())


sys.meta_path.insert(0, Watch)
knowledge = Knowledge(SimpleNamespace(embeddings={}), *[None] * 5)
asyncio.run(knowledge.opened_index())
print(importers)
"""


def test_the_modules_of_an_index_are_imported_beside_the_loop() -> None:
    opened = subprocess.run([sys.executable, "-c", _OPENS], capture_output=True, text=True, check=False)
    assert (opened.stdout, opened.stderr) == ("[False]\n", "")
