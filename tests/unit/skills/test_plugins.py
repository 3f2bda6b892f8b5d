"""Plugins: their skills, and a sentence for every part that would have another effect."""

import json
from typing import Any

import pytest
from moorage import limits
from moorage.skills import bundle, plugins
from moorage.skills.plugins import MANIFEST, Plugin, PluginProblem

from tests.unit.skills.archives import plugin, zip_of
from tests.unit.skills.archives import skill as skill_files

TABLES = bundle.of_zip(zip_of(skill_files()))
SKILL = {f"skills/{name}": content for name, content in skill_files().items()}


def refusal(files: dict[str, bytes]) -> str:
    with pytest.raises(PluginProblem) as problem:
        plugins.of_zip(zip_of(files))
    return str(problem.value)


def test_a_plugin_is_its_skills() -> None:
    made = Plugin("depot", "Knows the depot.", (TABLES,))
    assert plugins.of_zip(zip_of(plugin())) == made
    assert plugins.of_zip(zip_of({f"depot-1.0/{name}": content for name, content in plugin().items()})) == made


@pytest.mark.parametrize("declared", ["./skills/", "./skills", ["./skills/"], "./skills/tables", None, ""])
def test_skills_are_found_where_the_manifest_says(declared: Any) -> None:
    assert plugins.of_zip(zip_of(plugin(skills=declared))).skills == (TABLES,)


def test_skills_lie_in_any_folders_that_are_declared() -> None:
    files = plugin(skills=["./work/", "./more/tables"])
    moved = {name.replace("skills/", "work/"): content for name, content in files.items()}
    other = {f"more/{name}": content for name, content in skill_files(data=b"1").items()}
    assert plugins.of_zip(zip_of(moved | other)).skills == (bundle.of_zip(zip_of(skill_files(data=b"1"))), TABLES)


def test_what_is_for_people_has_no_effect() -> None:
    fields = {"version": "1.0.0", "author": {"name": "A"}, "keywords": ["a"], "interface": {"displayName": "Depot"}, "hooks": {}}
    files = plugin(**fields) | {"README.md": b"a", "LICENSE": b"b", "assets/icon.png": b"c", "__MACOSX/._a": b"d"}
    assert plugins.of_zip(zip_of(files)) == plugins.of_zip(zip_of(plugin()))


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("mcpServers", "it has MCP servers. Give them to the agent as 'tools' of the type 'mcp'."),
        ("apps", "it has apps, which belong to ChatGPT. Give their MCP servers to the agent as 'tools' of the type 'mcp'."),
        ("hooks", "it has hooks, and no hooks run here. Give commands that prepare an environment as 'setup_commands'."),
        ("commands", "it has commands. Make each of them a skill."),
        ("agents", "it has agents. Save them as agents of this API."),
        ("lspServers", "the field is not known here. Leave it out."),
    ],
)
def test_a_field_with_another_effect_is_refused_by_name(field: str, said: str) -> None:
    assert refusal(plugin(**{field: "./x"})) == f"'{field}' in '{MANIFEST}' is not available: {said}"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (".mcp.json", "it has MCP servers. "),
        (".app.json", "it has apps, "),
        ("hooks/hooks.json", "it has hooks, "),
        ("commands/a.md", "it has commands. "),
        ("agents/a.toml", "it has agents. "),
        ("plugin.json", "it is in no folder of a skill. Put it into the folder of the skill that uses it, or leave it out."),
        ("scripts/run.sh", "it is in no folder of a skill. "),
        ("skills/README.md", "it is in no folder of a skill. "),
        (".codex-plugin/more.json", "it is in no folder of a skill. "),
    ],
)
def test_a_file_with_another_effect_is_refused_by_name(path: str, said: str) -> None:
    assert refusal(plugin() | {path: b"{}"}).startswith(f"'{path}' is not available: {said}")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (SKILL, f"The zip file has no '{MANIFEST}'."),
        ({}, f"The zip file has no '{MANIFEST}'."),
        ({MANIFEST: b"{"} | SKILL, f"'{MANIFEST}' is not JSON ("),
        ({MANIFEST: b"[]"} | SKILL, f"'{MANIFEST}' must hold an object."),
        ({MANIFEST: b" " * (limits.PLUGIN_MANIFEST_BYTES_MAX + 1)} | SKILL, f"'{MANIFEST}' has more than 65536 bytes."),
        ({MANIFEST: b'{"description": "d"}'} | SKILL, f"'name' in '{MANIFEST}' must be a text of 1 to 64 characters."),
        ({MANIFEST: b'{"name": "a"}'} | SKILL, f"'description' in '{MANIFEST}' must be a text of 1 to 1024 characters."),
        (plugin(name="a/b"), f"'name' in '{MANIFEST}' must have letters, digits, '-' and '_' only."),
        ({MANIFEST: plugin()[MANIFEST]}, "It has no skills: put them into folders such as 'skills/my-skill/SKILL.md'."),
        (plugin(skills="./none/"), f"'skills' in '{MANIFEST}' names 'none', and there is no such folder."),
        (plugin(skills="skills"), f"A path in 'skills' of '{MANIFEST}' must begin with './', and lead to a folder of the plugin."),
        (plugin(skills="./../a"), f"A path in 'skills' of '{MANIFEST}' must begin with './', and lead to a folder of the plugin."),
        (plugin(skills=[1]), f"A path in 'skills' of '{MANIFEST}' must begin with './', and lead to a folder of the plugin."),
        (plugin(skills={"a": 1}), f"'skills' in '{MANIFEST}' must be a path, or a list of 200 paths at most."),
        (plugin() | {"skills/shared/a.md": b"a"}, "'skills/shared' is no skill. The bundle has no SKILL.md."),
        (plugin() | {"skills/tables/A.zip": b"a"}, "'skills/tables/A.zip' is a zip file inside the bundle; "),
        (plugin() | {"skills/TABLES/SKILL.md": b"a"}, "'skills/tables/SKILL.md' and 'skills/TABLES/SKILL.md' are the same name "),
    ],
)
def test_what_is_no_plugin_is_told_why(files: dict[str, bytes], said: str) -> None:
    assert refusal(files).startswith(said)


def test_a_plugin_has_as_many_skills_as_a_container() -> None:
    names = [f"s{n}" for n in range(limits.SKILLS_ATTACHED_MAX + 1)]
    files = {f"skills/{name}/SKILL.md": f"---\nname: {name}\ndescription: d\n---\n".encode() for name in names}
    manifest = {MANIFEST: json.dumps({"name": "many", "description": "d"}).encode()}
    assert refusal(manifest | files) == "It has 201 skills; at most 200 are allowed."
    del files["skills/s7/SKILL.md"]
    assert len(plugins.of_zip(zip_of(manifest | files)).skills) == limits.SKILLS_ATTACHED_MAX
