"""Skills that come with the package: the folders beside this module.

They are addressed as ``moorage-<name>``, and as ``openai-<name>`` by programs that name OpenAI's. A folder has underscores where its
skill's name has hyphens: it is a Python package too, so that linters and types cover its scripts.
"""

from functools import cache
from pathlib import Path
from typing import Final

from moorage.skills import bundle
from moorage.skills.bundle import SkillBundle

VERSION: Final = "1"
"""They have one; what they hold goes with the package."""
_FOLDER: Final = Path(__file__).parent / "curated_skills"
_PREFIXES: Final = ("moorage-", "openai-")


def names() -> tuple[str, ...]:
    """Of the skills, sorted."""
    return tuple(sorted(path.parent.name.replace("_", "-") for path in _FOLDER.glob("*/SKILL.md")))


def find(skill_id: str) -> SkillBundle | None:
    """The bundle that an id names; None for an id that is no curated skill's."""
    for prefix in _PREFIXES:
        name = skill_id.removeprefix(prefix)
        if name != skill_id and name in names():
            return _bundle(name)
    return None


@cache
def _bundle(name: str) -> SkillBundle:
    folder = _FOLDER / name.replace("-", "_")
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    return bundle.of_files((f"{name}/{path.relative_to(folder).as_posix()}", path.read_bytes()) for path in files)
