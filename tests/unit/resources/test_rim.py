"""What nobody expected: the client reads a calm sentence, and the log where it happened, without a word of what was being worked on."""

import io
import json

import httpx
from fastapi import APIRouter
from moorage.api.app import create_app
from moorage.telemetry import open_log

from tests.opened_logs import close_log
from tests.unit.resources.service import Service

router = APIRouter()


@router.get("/broken")
async def broken() -> None:
    raise KeyError("sk-a-secret-of-the-request")


async def test_an_error_that_nobody_expected_is_told_by_class_and_place(service: Service) -> None:
    app = create_app(service.runtime, (router,))
    written = io.StringIO()
    handler = open_log(written)
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api/v1") as http:
            answer = await http.get("/broken", headers={"authorization": "Bearer key-a"})
    finally:
        close_log(handler)
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
    (line,) = [json.loads(line) for line in written.getvalue().splitlines() if "unhandled error" in line]
    assert (line["error"], line["path"], line["request_id"]) == ("KeyError", "/v1/broken", answer.headers["x-request-id"])
    assert any(where.endswith(":broken") for where in line["where"])
    assert "sk-a-secret" not in written.getvalue() + answer.text
