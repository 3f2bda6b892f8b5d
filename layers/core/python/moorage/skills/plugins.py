"""A plugin of Codex, from a zip: ``.codex-plugin/plugin.json`` and folders of skills.

The manifest's fields and the places of parts are those of Codex (openai/codex, ``core-plugins/src/manifest.rs`` and ``loader.rs``; its
guide "Package your plugin"). Only skills have an effect here. A part that would have another effect is refused by its name.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.skills import bundle
from moorage.skills.bundle import BundleFile, SkillBundle, shown
from moorage.skills.front_matter import SkillProblem

MANIFEST: Final = ".codex-plugin/plugin.json"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_SKILLS: Final = "./skills/"
_PRESENTED: Final = {"version", "author", "homepage", "repository", "license", "keywords", "interface", "$schema"}
"""What a directory of plugins shows to people; no agent sees it."""
_PAPERS: Final = re.compile(r"(readme|license|licence|notice|changelog)([._-][^/]*)?", re.IGNORECASE)
_PICTURES: Final = "assets"
"""The folder of icons and screenshots that ``interface`` names."""

_SERVERS: Final = "it has MCP servers. Give them to the agent as 'tools' of the type 'mcp'"
_APPS: Final = "it has apps, which belong to ChatGPT. Give their MCP servers to the agent as 'tools' of the type 'mcp'"
_HOOKS: Final = "it has hooks, and no hooks run here. Give commands that prepare an environment as 'setup_commands'"
_COMMANDS: Final = "it has commands. Make each of them a skill"
_AGENTS: Final = "it has agents. Save them as agents of this API"
_FIELDS: Final = {"mcpServers": _SERVERS, "apps": _APPS, "hooks": _HOOKS, "commands": _COMMANDS, "agents": _AGENTS}
_UNKNOWN: Final = "the field is not known here. Leave it out"
_PLACES: Final = {
    ".mcp.json": _SERVERS,
    "mcp.json": _SERVERS,
    ".app.json": _APPS,
    "hooks": _HOOKS,
    "hooks.json": _HOOKS,
    "commands": _COMMANDS,
    "agents": _AGENTS,
}


class PluginProblem(Exception):
    """Why a zip is no plugin that can be given, in a sentence."""


@dataclass(frozen=True, slots=True)
class Plugin:
    name: str
    description: str
    skills: tuple[SkillBundle, ...]
    """One at least, by folder."""


def of_zip(data: bytes) -> Plugin:
    """The plugin in a zip file, whose files lie at its top or in one folder. Raises :class:`PluginProblem`."""
    try:
        entries = bundle.read_zip(data)
        bundle.check_distinct(entries)
    except SkillProblem as problem:
        raise PluginProblem(str(problem)) from problem
    files = {entry.path: entry for entry in _below_the_top(entries)}
    manifest = _manifest(files.pop(MANIFEST, None))
    folders = _skill_folders(_roots(manifest), files)
    _check_rest(files, folders)
    if not folders:
        raise PluginProblem("It has no skills: put them into folders such as 'skills/my-skill/SKILL.md'.")
    if len(folders) > limits.SKILLS_ATTACHED_MAX:
        raise PluginProblem(f"It has {len(folders)} skills; at most {limits.SKILLS_ATTACHED_MAX} are allowed.")
    return Plugin(manifest["name"], manifest["description"], tuple(_skill(folder, files) for folder in folders))


def _below_the_top(entries: Sequence[BundleFile]) -> Iterator[BundleFile]:
    """The files by their names inside the plugin."""
    tops = {entry.path.partition("/")[0] for entry in entries}
    cut = 0
    if len(tops) == 1 and MANIFEST.partition("/")[0] not in tops:
        cut = len(next(iter(tops))) + 1
    for entry in entries:
        yield BundleFile(entry.path[cut:] or entry.path, entry.content, entry.is_executable)


def _manifest(file: BundleFile | None) -> Mapping[str, Any]:
    """Its fields, whose name and description are texts, and which declares nothing but skills."""
    if file is None:
        raise PluginProblem(f"The zip file has no '{MANIFEST}'.")
    if len(file.content) > limits.PLUGIN_MANIFEST_BYTES_MAX:
        raise PluginProblem(f"'{MANIFEST}' has more than {limits.PLUGIN_MANIFEST_BYTES_MAX} bytes.")
    try:
        manifest = orjson.loads(file.content)
    except ValueError as error:
        raise PluginProblem(f"'{MANIFEST}' is not JSON ({error}).") from error
    if not isinstance(manifest, dict):
        raise PluginProblem(f"'{MANIFEST}' must hold an object.")
    for field, most in (("name", limits.SKILL_NAME_CHARS_MAX), ("description", limits.SKILL_DESCRIPTION_CHARS_MAX)):
        value = manifest.get(field)
        if not isinstance(value, str) or not value.strip() or len(value) > most:
            raise PluginProblem(f"'{field}' in '{MANIFEST}' must be a text of 1 to {most} characters.")
    if not _NAME.fullmatch(manifest["name"]):
        raise PluginProblem(f"'name' in '{MANIFEST}' must have letters, digits, '-' and '_' only.")
    for field in sorted(manifest.keys() - _PRESENTED - {"name", "description", "skills"}):
        if manifest[field] or field not in _FIELDS:  # An empty list of servers declares none.
            raise PluginProblem(f"'{shown(field)}' in '{MANIFEST}' is not available: {_FIELDS.get(field, _UNKNOWN)}.")
    return manifest


def _roots(manifest: Mapping[str, Any]) -> list[str]:
    """The folders of skills that it declares, or the one that is there without a word."""
    declared = manifest.get("skills") or _SKILLS
    paths = [declared] if isinstance(declared, str) else declared
    if not isinstance(paths, list) or len(paths) > limits.SKILLS_ATTACHED_MAX:
        raise PluginProblem(f"'skills' in '{MANIFEST}' must be a path, or a list of {limits.SKILLS_ATTACHED_MAX} paths at most.")
    return [_root(path) for path in paths]


def _root(path: object) -> str:
    inside = path.removeprefix("./").removesuffix("/") if isinstance(path, str) and path.startswith("./") else ""
    if not inside or any(part in ("", ".", "..") for part in inside.split("/")):
        raise PluginProblem(f"A path in 'skills' of '{MANIFEST}' must begin with './', and lead to a folder of the plugin.")
    return inside


def _skill_folders(roots: Sequence[str], files: Mapping[str, BundleFile]) -> list[str]:
    """Each folder below a root, or the root if it is a skill itself."""
    found: set[str] = set()
    for root in roots:
        if f"{root}/{bundle.MANIFEST}" in files:
            found.add(root)
            continue
        inside = [path.removeprefix(f"{root}/") for path in files if path.startswith(f"{root}/")]
        if not inside and root != _root(_SKILLS):
            raise PluginProblem(f"'skills' in '{MANIFEST}' names '{shown(root)}', and there is no such folder.")
        found |= {f"{root}/{path.partition('/')[0]}" for path in inside if "/" in path}
    return sorted(found)


def _check_rest(files: Mapping[str, BundleFile], folders: Sequence[str]) -> None:
    """Nothing is left out without a word: a file is a skill's, or for people, or a reason to refuse the plugin."""
    inside = set(folders)
    for path in files:
        parts = path.split("/")
        if any("/".join(parts[:depth]) in inside for depth in range(1, len(parts))):
            continue
        if parts[0] == _PICTURES or _PAPERS.fullmatch(path):
            continue
        reason = _PLACES.get(
            parts[0], "it is in no folder of a skill. Put it into the folder of the skill that uses it, or leave it out"
        )
        raise PluginProblem(f"'{shown(path)}' is not available: {reason}.")


def _skill(folder: str, files: Mapping[str, BundleFile]) -> SkillBundle:
    above = len(folder.rpartition("/")[0])
    try:
        return bundle.of_entries(
            [
                BundleFile(path[above:].removeprefix("/"), entry.content, entry.is_executable)
                for path, entry in files.items()
                if path.startswith(f"{folder}/")
            ]
        )
    except SkillProblem as problem:
        raise PluginProblem(f"'{shown(folder)}' is no skill. {problem}") from problem
