"""JSON answers."""

from typing import Any

import orjson
from starlette.responses import Response


class JsonResponse(Response):
    """A body rendered by orjson; FastAPI's own class for it is deprecated, and its default serialises through pydantic."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)
