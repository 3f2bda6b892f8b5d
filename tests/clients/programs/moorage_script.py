"""What every Python program here needs: where the stack is, and messages that make the demo model play a script."""

import json
import os
from typing import Any

URL = os.environ["OPENAI_BASE_URL"]
KEY = os.environ["OPENAI_API_KEY"]
MODEL = "demo"


def script(*steps: dict[str, Any]) -> str:
    return f"```moorage-script\n{json.dumps(list(steps))}\n```"


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"call": {"name": name, "arguments": arguments}}


def shell(*commands: str) -> dict[str, Any]:
    return {"shell": {"commands": list(commands)}}


def say(text: str) -> dict[str, Any]:
    return {"say": text}


def expect(actual: object, wanted: object) -> None:
    """An assert that survives ``python -O`` and shows both sides."""
    if actual != wanted:
        raise SystemExit(f"expected {wanted!r}, got {actual!r}")


def expect_in(part: str, whole: str | None) -> None:
    if whole is None or part not in whole:
        raise SystemExit(f"expected {part!r} in {whole!r}")
