"""Requests on AWS that only a function in the sandboxes' network can answer: it is the same application, and is asked in the place of
the one outside, with the event as it is.

What is asked of a screen goes inside first. Only where that finds no sandbox is there something to do outside: to start one. Where a
deployment has MicroVMs too, sessions and processes are asked outside first. MicroVMs are reached there; of a task of Fargate the answer
is 421.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from moorage.errors import MISDIRECTED

Event = dict[str, Any]
Answer = dict[str, Any]

_SCREEN: Final = re.compile(r"/v1/containers/[^/]+/screen(/control|/input)?")
_UNAVAILABLE: Final = 503


class InsideRelay:
    def __init__(self, serve: Callable[[Event, Any], Answer], functions: Any, inside: str) -> None:
        """``serve`` answers all else; ``functions`` is boto3's client of Lambda, and ``inside`` the function that it asks."""
        self._serve = serve
        self._functions = functions
        self._inside = inside

    def __call__(self, event: Event, context: Any) -> Answer:
        screen = _SCREEN.fullmatch(event["path"])
        if screen is None:
            answer = self._serve(event, context)
            return self._asked(event) if answer["statusCode"] == MISDIRECTED else answer
        shown = self._asked(event)
        is_control = screen[1] == "/control"
        return self._serve(event, context) if is_control and shown["statusCode"] == _UNAVAILABLE else shown

    def _asked(self, event: Event) -> Answer:
        answer = self._functions.invoke(FunctionName=self._inside, Payload=json.dumps(event).encode())
        said: Answer = json.loads(answer["Payload"].read())
        if "FunctionError" in answer:
            raise RuntimeError(f"The function in the sandboxes' network failed: {said.get('errorType')}.")
        return said
