"""What is too much in an archive, or was never in one that the service has made."""

import asyncio
from typing import Any

import orjson
import pytest
from moorage import limits
from moorage.agents.archive_plan import Renaming, response_of
from moorage.agents.archive_shapes import ARCHIVED_SESSION
from moorage.errors import ApiError
from moorage.wire.validation import parse_object

USED = {"input_tokens": 1, "output_tokens": 1, "cached_tokens": 0, "cache_write_tokens": 0, "reasoning_tokens": 0}


def test_a_response_of_too_many_values_is_refused_before_it_is_parsed() -> None:
    head = b'{"id":"resp_' + b"a" * 40 + b'00000000","status":"completed","ended_at_ms":0}'
    text = head + b"\n" + b"[" + b"0," * limits.AGENT_ARCHIVE_VALUES_MAX + b"0]"
    with pytest.raises(ApiError, match="more than 2000000 JSON values"):
        asyncio.run(response_of(text, Renaming(), lambda content: content))


def test_a_session_of_the_most_turns_and_artifacts_is_read() -> None:
    def turn(number: int) -> dict[str, Any]:
        responses = [f"resp_{number:040x}00000000"]
        facts = {"id": f"turn_{number:048x}", "number": number, "created_at": 1, "cancelled_at": 0, "responses": responses}
        return facts | {"used": USED, "earlier": USED, "cost": 0}

    session = {
        "id": "session_1",
        "agent_version": 1,
        "settings": {"model": "m"},
        "metadata": {},
        "left_out": [],
        "turns": [turn(number) for number in range(1, limits.AGENT_EXPORT_TURNS_MAX + 1)],
        "files": [],
        "artifacts": [
            {"turn": 1, "path": f"/workspace/outputs/{number}", "bytes": 1, "created_at": 1}
            for number in range(limits.AGENT_EXPORT_ARTIFACTS_MAX)
        ],
    }
    said = ARCHIVED_SESSION(parse_object(orjson.dumps(session), values_max=limits.AGENT_ARCHIVE_VALUES_MAX))
    assert len(said["turns"]) == limits.AGENT_EXPORT_TURNS_MAX
