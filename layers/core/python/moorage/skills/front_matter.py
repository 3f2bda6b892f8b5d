"""The head of a skill's SKILL.md: YAML between two lines of ``---`` (agentskills.io, "Specification").

``name`` and ``description`` are what a model reads before anything else of the skill; the other fields are for people and stay in the
file as they are.
"""

import re
from typing import Any, Final

from moorage import limits
from moorage.dataclass import dataclass

_FENCE: Final = "---"
_NAME: Final = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")
"""agentskills.io allows hyphens; OpenAI's own examples have underscores as well."""


class SkillProblem(Exception):
    """Why a bundle is no skill, in a sentence that names the file and the rule."""


@dataclass(frozen=True, slots=True)
class FrontMatter:
    name: str
    """1 to 64 characters: lower-case letters, digits, single hyphens or underscores between them."""
    description: str
    """1 to 1,024 characters."""


def read(content: bytes, path: str) -> FrontMatter:
    """The front matter of the SKILL.md at ``path``. Raises :class:`SkillProblem`."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SkillProblem(f"{path} is not UTF-8 (byte {error.start}).") from error
    fields = _fields(_head(text, path), path)
    return FrontMatter(_name(fields, path), _description(fields, path))


def _head(text: str, path: str) -> str:
    lines = text[: limits.SKILL_FRONT_MATTER_CHARS_MAX].splitlines()
    if not lines or lines[0].rstrip() != _FENCE:
        raise SkillProblem(f"{path} must begin with front matter: a line '---', 'name: ...', 'description: ...', and a line '---'.")
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == _FENCE:
            return "\n".join(lines[1:number])
    raise SkillProblem(
        f"The front matter of {path} has no closing line '---' within its first {limits.SKILL_FRONT_MATTER_CHARS_MAX} characters."
    )


def _fields(head: str, path: str) -> dict[Any, Any]:
    from moorage.skills import bounded_yaml  # With a library that others have no use for.

    try:
        fields = bounded_yaml.load(head)
    except bounded_yaml.NotYaml as error:
        place = f" (line {error.line + 1}: {error.problem})" if error.line else ""
        raise SkillProblem(f"The front matter of {path} is not valid YAML{place}.") from error
    if not isinstance(fields, dict):
        raise SkillProblem(f"The front matter of {path} must be a mapping with 'name' and 'description'.")
    return fields


def _name(fields: dict[Any, Any], path: str) -> str:
    name = _text(fields, "name", path)
    if len(name) > limits.SKILL_NAME_CHARS_MAX:
        raise SkillProblem(f"The 'name' in {path} has {len(name)} characters; at most {limits.SKILL_NAME_CHARS_MAX} are allowed.")
    if not _NAME.fullmatch(name):
        raise SkillProblem(
            f"The 'name' in {path} must consist of lower-case letters (a-z), digits and single hyphens or underscores, "
            "and begin and end with a letter or digit."
        )
    return name


def _description(fields: dict[Any, Any], path: str) -> str:
    description = _text(fields, "description", path)
    if len(description) > limits.SKILL_DESCRIPTION_CHARS_MAX:
        raise SkillProblem(
            f"The 'description' in {path} has {len(description)} characters; at most {limits.SKILL_DESCRIPTION_CHARS_MAX} are allowed."
        )
    return description


def _text(fields: dict[Any, Any], field: str, path: str) -> str:
    if field not in fields:
        raise SkillProblem(f"The front matter of {path} has no '{field}'.")
    value = fields[field]
    if not isinstance(value, str):
        raise SkillProblem(f"The '{field}' in {path} must be text; put it in quotes.")
    if not value.strip():
        raise SkillProblem(f"The '{field}' in {path} is empty.")
    return value.strip()
