"""What the archive of an agent says, and the bodies and answers of its import. Extensions of ours."""

from typing import Annotated, Final, Literal, Required

from pydantic import AfterValidator, Field, StringConstraints
from typing_extensions import TypedDict

from moorage import limits
from moorage.agents.session_shapes import SessionBudget, VaultIds
from moorage.agents.shapes import CreateAgent, SavedAgent
from moorage.environments.shapes import ContainerSize, FilePath, NetworkParam, PackagesParam
from moorage.wire.create import Metadata
from moorage.wire.items import InputItem
from moorage.wire.refusals import wrong_value
from moorage.wire.validation import Fields, Id, JsonValidator, Length, Text, wire

FORMAT: Final = "moorage.agent"
VERSION: Final = 1

_Count = Annotated[int, Field(ge=0, le=2**53)]
_ResponseId = Annotated[str, StringConstraints(pattern=r"^resp_[0-9a-f]{40}0{8}$")]
_ContainerId = Annotated[str, StringConstraints(pattern=r"^cntr_[0-9a-f]{48}$")]
_TurnId = Annotated[str, StringConstraints(pattern=r"^turn_[0-9a-f]{48}$")]


@wire
class ArchivedAgent(TypedDict):
    """``agent.json``, the first entry."""

    format: Literal["moorage.agent"]
    version: Annotated[int, Field(ge=VERSION, le=VERSION)]
    id: Id
    versions: Annotated[int, Field(ge=1, le=limits.AGENT_VERSIONS_MAX)]
    sessions: Annotated[int, Field(ge=0, le=limits.AGENT_EXPORT_SESSIONS_MAX)]


@wire
class ArchivedVersion(TypedDict):
    """``versions/NNNN.json``."""

    updated_at: _Count
    settings: CreateAgent


@wire
class ArchivedUsage(TypedDict):
    """Tokens."""

    input_tokens: _Count
    output_tokens: _Count
    cached_tokens: _Count
    cache_write_tokens: _Count
    reasoning_tokens: _Count


@wire
class ArchivedTurn(TypedDict):
    id: _TurnId
    number: Annotated[int, Field(ge=1, lt=2**32)]
    created_at: _Count
    cancelled_at: _Count
    responses: Annotated[list[_ResponseId], Length(limits.AGENT_TURN_RESPONSES_MAX, minimum=1)]
    used: ArchivedUsage
    """By all of its responses."""
    earlier: ArchivedUsage
    """By the turns before it."""
    cost: Annotated[int, Field(ge=-1, le=2**53)]
    """In billionths of a dollar; -1 where it is not known."""


@wire
class ArchivedFile(TypedDict):
    path: FilePath
    bytes: Annotated[int, Field(ge=0, le=limits.FILE_BYTES_MAX)]


@wire
class ArchivedArtifact(TypedDict):
    turn: Annotated[int, Field(ge=1, lt=2**32)]
    path: FilePath
    bytes: Annotated[int, Field(ge=0, le=limits.FILE_BYTES_MAX)]
    created_at: _Count


@wire
class ArchivedEnvironment(TypedDict, total=False):
    """What a new one is made with: no variables, no commands, no skills and no plugins."""

    container_id: Required[_ContainerId]
    container_size: ContainerSize
    network: NetworkParam
    packages: PackagesParam


@wire
class ArchivedSession(TypedDict, total=False):
    """``sessions/NNNN/session.json``."""

    id: Required[Id]
    agent_version: Required[_Count]
    settings: Required[CreateAgent]
    metadata: Required[Metadata]
    budget: SessionBudget
    environment: ArchivedEnvironment
    left_out: Required[Annotated[list[Annotated[str, Field(max_length=limits.NAME_CHARS_MAX)]], Length(limits.AGENT_EXPORT_NAMES_MAX)]]
    begins_with: _ResponseId
    """What it goes on from as a fork, or as one that was imported."""
    turns: Required[Annotated[list[ArchivedTurn], Length(limits.AGENT_EXPORT_TURNS_MAX)]]
    files: Required[Annotated[list[ArchivedFile], Length(limits.ARTIFACTS_MAX)]]
    artifacts: Required[Annotated[list[ArchivedArtifact], Length(limits.AGENT_EXPORT_ARTIFACTS_MAX)]]


@wire
class ArchivedError(TypedDict, total=False):
    code: Required[Annotated[str, Field(max_length=limits.NAME_CHARS_MAX)]]
    message: Required[Text]
    param: str


@wire
class ArchivedResponse(TypedDict, total=False):
    """The first line of ``sessions/NNNN/turns/NNNNNNNN/NNNN.jsonl``."""

    id: Required[_ResponseId]
    status: Required[Literal["completed", "incomplete", "failed", "cancelled", "deleted"]]
    ended_at_ms: Required[_Count]
    error: ArchivedError
    incomplete_reason: Annotated[str, Field(max_length=limits.NAME_CHARS_MAX)]


def _no_reference(line: Fields) -> Fields:
    if line["item"]["type"] == "item_reference":
        raise wrong_value("it is a reference, and the item itself is needed.", "item")
    return line


@wire
class _Line(TypedDict):
    of: Literal["past", "input", "output"]
    """What was said before the first response of a chain; what a response was given; what it has answered."""
    item: InputItem


ArchivedLine = Annotated[_Line, AfterValidator(_no_reference)]


@wire
class ArchivedNotes(TypedDict):
    """The opened content of a ``compaction`` (``loop/notes.py``)."""

    text: str
    recent: Annotated[list[InputItem], Length(limits.AGENT_ARCHIVE_ITEMS_MAX)]
    user_tokens: _Count
    is_cut: bool


ARCHIVED_AGENT: Final = JsonValidator[Fields](ArchivedAgent)
ARCHIVED_VERSION: Final = JsonValidator[Fields](ArchivedVersion)
ARCHIVED_SESSION: Final = JsonValidator[Fields](ArchivedSession)
ARCHIVED_RESPONSE: Final = JsonValidator[Fields](ArchivedResponse)
ARCHIVED_LINE: Final = JsonValidator[Fields](ArchivedLine)
ARCHIVED_NOTES: Final = JsonValidator[Fields](ArchivedNotes)

# --- The import ---------------------------------------------------------------------------------------------------------


@wire
class ImportAgent(TypedDict, total=False):
    """``POST /v1/agents/import``."""

    file_id: Required[Id]
    """The archive, uploaded by ``/v1/files``."""
    vault_ids: VaultIds
    """The vaults of the imported sessions."""
    network: Literal["keep", "disabled"]
    """Whether their environments reach what the exported ones did. Without it they do."""


IMPORT_AGENT: Final = JsonValidator[Fields](ImportAgent)


class ImportedSession(TypedDict):
    id: str
    imported_from: str
    """Its id in the archive."""
    left_out: list[str]
    """What it had and has not come along: ``env``, ``setup_commands``, ``skills``, ``plugins``, ``vaults``."""


class AgentImport(TypedDict):
    object: Literal["agent.import"]
    agent: SavedAgent
    imported_from: str
    sessions: list[ImportedSession]
