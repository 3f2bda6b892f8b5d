"""Sessions of a container: their bodies and answers. All of it is an extension of ours."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from moorage import limits
from moorage.dataclass import dataclass
from moorage.wire.answers import Count, Seconds
from moorage.wire.query_strings import whole_number
from moorage.wire.refusals import wrong_value
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


SessionStatus = Literal["starting", "running", "ended"]
SessionOutcome = Literal["exit", "timeout", "killed", "lost"]


class ContainerTerminal(TypedDict):
    id: str
    object: Literal["container.session"]
    container_id: str
    created_at: Seconds
    command: str | None
    columns: Count
    rows: Count
    status: SessionStatus
    outcome: SessionOutcome | None
    exit_code: Count | None


class ContainerTerminalOutput(TypedDict):
    object: Literal["container.session.output"]
    session_id: str
    starting_after: Count
    output: str
    next: Count
    status: SessionStatus
    outcome: SessionOutcome | None
    exit_code: Count | None


class ContainerTerminalInput(TypedDict):
    object: Literal["container.session.input"]
    session_id: str


@dataclass(frozen=True, slots=True)
class TerminalOutputQuery:
    starting_after: Annotated[int, whole_number()] = 0
    """The offset of the first byte that is wanted."""
    wait_ms: Annotated[int, whole_number(0, limits.SESSION_READ_MS_MAX)] = limits.SESSION_READ_MS_MAX
