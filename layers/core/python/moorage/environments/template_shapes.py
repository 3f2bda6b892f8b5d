"""Templates of environments: their bodies and answers. The fields are those of an environment."""

from typing import Annotated, Final, Literal

from pydantic import Field
from typing_extensions import TypedDict

from moorage import limits
from moorage.environments.shapes import (
    DesktopAnswer,
    EnvironmentConfiguration,
    InlineSkillAnswer,
    NetworkAnswer,
    PackagesAnswer,
    PluginAnswer,
    check_setup,
)
from moorage.wire.answers import Seconds
from moorage.wire.validation import Fields, JsonValidator, wire_with


@wire_with(check_setup)
class SaveTemplate(EnvironmentConfiguration, total=False):
    """``POST /v1/agents/environments/templates``, and a change of one: what is left out stays, and null sets it back."""

    name: Annotated[str, Field(max_length=limits.AGENT_NAME_CHARS_MAX)]


SAVE_TEMPLATE: Final = JsonValidator[Fields](SaveTemplate)


class TemplateFileById(TypedDict):
    type: Literal["file_id"]
    file_id: str
    path: str


class TemplateInlineFile(TypedDict):
    type: Literal["inline"]
    path: str
    size_bytes: int


class TemplateSkillReference(TypedDict):
    """``version`` as it was asked for: each environment looks it up."""

    type: Literal["skill_reference"]
    skill_id: str
    version: str | None


class EnvironmentTemplate(TypedDict):
    id: str
    object: Literal["agent.environment.template"]
    created_at: Seconds
    updated_at: Seconds
    name: str | None
    capability_directories: list[str]
    desktop: DesktopAnswer
    files: list[TemplateFileById | TemplateInlineFile]
    network: NetworkAnswer
    packages: PackagesAnswer
    plugins: list[PluginAnswer]
    skills: list[TemplateSkillReference | InlineSkillAnswer]
