"""Screens on AWS: what is asked below ``/v1/containers`` comes to a function that starts sandboxes, and reaches none.

The function in the sandboxes' network is the same application, so it is asked in its place, with the event as it is. Only where it
finds no sandbox is there something to do outside: to start one.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final

Event = dict[str, Any]
Answer = dict[str, Any]

_SCREEN: Final = re.compile(r"/v1/containers/[^/]+/screen(/control|/input)?")
_UNAVAILABLE: Final = 503


class ScreenRelay:
    def __init__(self, serve: Callable[[Event, Any], Answer], functions: Any, inside: str) -> None:
        """``serve`` answers all else; ``functions`` is boto3's client of Lambda, and ``inside`` the function that it asks."""
        self._serve = serve
        self._functions = functions
        self._inside = inside

    def __call__(self, event: Event, context: Any) -> Answer:
        screen = _SCREEN.fullmatch(event["path"])
        if screen is None:
            return self._serve(event, context)
        shown = self._asked(event)
        is_control = screen[1] == "/control"
        return self._serve(event, context) if is_control and shown["statusCode"] == _UNAVAILABLE else shown

    def _asked(self, event: Event) -> Answer:
        answer = self._functions.invoke(FunctionName=self._inside, Payload=json.dumps(event).encode())
        said: Answer = json.loads(answer["Payload"].read())
        if "FunctionError" in answer:
            raise RuntimeError(f"The function in the sandboxes' network failed: {said.get('errorType')}.")
        return said
