"""The wheel carries the console's libraries: they are fetched when it is built, as ``make setup`` does for a checkout."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Console(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # A checkout is set up by make, and serves them from where they are fetched to.
        root = Path(self.root)
        runpy.run_path(str(root / "console" / "fetch.py"))["fetch"]()
        build_data["force_include"][str(root / ".build" / "console" / "vendor")] = "moorage/console/vendor"
