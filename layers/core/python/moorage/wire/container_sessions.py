"""Sessions of a container: their bodies, and their routes as the OpenAPI document tells of them. All of it is an extension of ours."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from moorage import limits
from moorage.wire.refusals import wrong_value
from moorage.wire.route import JSON, STRING, Route, deleted, envelope, nullable, record, ref
from moorage.wire.schema import JsonSchema
from moorage.wire.validation import Body

_Side = Annotated[int, Field(ge=1, le=limits.SESSION_SIDE_MAX)]


def _command(given: str) -> str:
    if "\0" in given:
        raise wrong_value("a command cannot hold a null character.")
    return given


class OpenSession(Body):
    """``POST /v1/containers/{container_id}/sessions``."""

    command: Annotated[str, Field(min_length=1, max_length=limits.COMMAND_CHARS_MAX), AfterValidator(_command)] | None = None
    columns: _Side = 80
    rows: _Side = 24


class SessionInput(Body):
    """``POST /v1/sessions/{session_id}/input``."""

    text: Annotated[str, Field(min_length=1, max_length=limits.SESSION_INPUT_CHARS_MAX)]
    id: Annotated[str, Field(min_length=1, max_length=limits.SESSION_INPUT_ID_CHARS_MAX)] | None = None


class ResizeSession(Body):
    """``POST /v1/sessions/{session_id}/resize``."""

    columns: _Side
    rows: _Side


_COUNT: Final[JsonSchema] = {"type": "integer", "minimum": 0}
_STATUS: Final[JsonSchema] = {"type": "string", "enum": ["starting", "running", "ended"]}
_OUTCOME: Final[JsonSchema] = {"type": "string", "enum": ["exit", "timeout", "killed", "lost"]}

_SESSION: Final = record(
    id=STRING,
    object={"const": "container.session"},
    container_id=STRING,
    created_at={"type": "integer", "description": "Unix seconds"},
    command=nullable(STRING),
    columns=_COUNT,
    rows=_COUNT,
    status=_STATUS,
    outcome=nullable(_OUTCOME),
    exit_code=nullable(_COUNT),
)

_OUTPUT: Final = record(
    object={"const": "container.session.output"},
    session_id=STRING,
    starting_after=_COUNT,
    output=STRING,
    next=_COUNT,
    status=_STATUS,
    outcome=nullable(_OUTCOME),
    exit_code=nullable(_COUNT),
)

_ALL: Final = "/v1/containers/{container_id}/sessions"
_ONE: Final = "/v1/sessions/{session_id}"

SESSION_ROUTES: Final = (
    Route("post", _ALL, "openSession", "Open a terminal in a container", {JSON: _SESSION}, {JSON: ref("OpenSession")}, also=(503,)),
    Route("get", _ALL, "listSessions", "The sessions of a container that have not ended, oldest first", {JSON: envelope(_SESSION)}),
    Route(
        "get",
        f"{_ALL}/{{session_id}}",
        "retrieveSession",
        "A session; one whose container is starting is helped on",
        {JSON: _SESSION},
        also=(503,),
    ),
    Route(
        "get",
        f"{_ONE}/output",
        "readSession",
        "What it has shown behind an offset, as soon as there is something",
        {JSON: _OUTPUT},
        query=(
            ("starting_after", _COUNT),
            ("wait_ms", _COUNT | {"maximum": limits.SESSION_READ_MS_MAX, "default": limits.SESSION_READ_MS_MAX}),
        ),
        also=(503,),
    ),
    Route(
        "post",
        f"{_ONE}/input",
        "typeIntoSession",
        "Type into it",
        {JSON: record(object={"const": "container.session.input"}, session_id=STRING)},
        {JSON: ref("SessionInput")},
        also=(503,),
    ),
    Route(
        "post",
        f"{_ONE}/resize",
        "resizeSession",
        "Another size of its terminal",
        {JSON: _SESSION},
        {JSON: ref("ResizeSession")},
        also=(503,),
    ),
    Route("delete", _ONE, "closeSession", "End it", {JSON: deleted("container.session.deleted")}),
)
