"""A model that plays the script in the conversation, as the demonstration's does, over HTTP and with the faults of an upstream."""

import json
import random
from typing import Any, Final

from tests.upstream import MockUpstream, Reply, Request, broken, called, called_shell, garbage, refused, said

NAME: Final = "scripted"
_FENCE: Final = "```moorage-script\n"


class ScriptedUpstream(MockUpstream):
    """``rate`` of its answers are none."""

    def __init__(self, seed: int) -> None:
        super().__init__(records=False)
        self.rate = 0.0
        self.faults = 0
        self._dice = random.Random(seed)

    def reply_to(self, request: Request) -> Reply:
        if self._dice.random() < self.rate:
            self.faults += 1
            return self._dice.choice((refused(503), refused(500), refused(429, retry_after=1), broken(), garbage()))
        return _next_step(request.body["messages"])


def _next_step(messages: list[dict[str, Any]]) -> Reply:
    texts = [_text(message) for message in messages if message["role"] == "user"]
    begun = [message for message in messages if message["role"] == "assistant" and message.get("tool_calls")]
    script = next((text.split(_FENCE)[1].split("\n```")[0] for text in texts if _FENCE in text), "[]")
    step = dict(enumerate(json.loads(script))).get(len(begun), {"say": "The end."})
    if "say" in step:
        return said(step["say"])
    if "call" in step:
        return called(step["call"]["name"], step["call"]["arguments"], call_id=f"call_{len(begun)}")
    return called_shell(*step["shell"]["commands"], call_id=f"call_{len(begun)}")


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
