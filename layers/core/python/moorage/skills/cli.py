"""``moorage skills``: folders that say how something is done, put into the deployment and taken out of it."""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import httpx

from moorage.cli.actions import CommandActions
from moorage.cli.output import listing, moment, told
from moorage.cli.pages import entries, list_action
from moorage.cli.target import TargetError, answer_of, find
from moorage.skills import bundle
from moorage.skills.bundle import SkillBundle
from moorage.skills.front_matter import SkillProblem
from moorage.terminal import say

_list: Final = list_action(
    "/skills",
    ("SKILL", "DEFAULT", "LATEST", "CREATED", "NAME", "DESCRIPTION"),
    lambda one: (
        one["id"],
        one["default_version"],
        one["latest_version"],
        moment(one["created_at"]),
        one["name"],
        _short(one["description"]),
    ),
)


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Skills of the key's tenant. SKILL is an id (skill_...) or a name; a name must belong to one skill."
    actions = CommandActions(parser, default=_list)
    actions.add("list", _list, "the tenant's skills, newest first (without ACTION too)")
    push = actions.add("push", _push, "upload a folder or a zip: a new skill, or the next version of the one with this name")
    push.add_argument("path", metavar="FOLDER", type=Path, help="with a SKILL.md, or a zip of such a folder")
    push.add_argument("--default", action="store_true", help="make it the default version")
    show = actions.add("show", _show, "a skill and its versions")
    show.add_argument("skill", metavar="SKILL")
    pull = actions.add("pull", _pull, "write a version into a folder called as the skill is")
    pull.add_argument("skill", metavar="SKILL")
    pull.add_argument("--version", help="a number or 'latest'; the default version without it")
    pull.add_argument("--into", type=Path, default=Path(), help="where the folder is made; by default here")
    delete = actions.add("delete", _delete, "delete a skill, or one version of it")
    delete.add_argument("skill", metavar="SKILL")
    delete.add_argument("--version", help="a number")
    validate = actions.add("validate", _validate, "say whether a folder or zip is a skill; asks no deployment")
    validate.add_argument("path", metavar="FOLDER", type=Path)


def _push(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    packed = _bundle(options.path)
    files = {"files": (f"{packed.name}.zip", packed.archive)}
    with find(environ).http() as http:
        known = _named(http, packed.name)
        if len(known) > 1:
            raise TargetError(f"{len(known)} skills are called '{packed.name}': {', '.join(known)}. Delete those that are not wanted.")
        if not known:
            made = answer_of(http.post("/skills", files=files))
            return told(options, made, f"{made['id']} is the skill '{made['name']}', version 1.")
        path = f"/skills/{known[0]}"
        version = answer_of(http.post(f"{path}/versions", files=files, data={"default": str(options.default).lower()}))
        default = answer_of(http.get(path))["default_version"]
        sentence = f"{known[0]} has version {version['version']} of '{packed.name}'; the default is {default}."
        return told(options, version | {"default_version": default}, sentence)


def _show(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        skill = answer_of(http.get(f"/skills/{_id(http, options.skill)}"))
        if not options.json:
            say(f"{skill['id']}  {skill['name']}\n{skill['description']}\n")
        return listing(
            options,
            entries(http, f"/skills/{skill['id']}/versions"),
            ("VERSION", "CREATED", "", "DESCRIPTION"),
            lambda one: (
                one["version"],
                moment(one["created_at"]),
                "default" if one["version"] == skill["default_version"] else "",
                _short(one["description"]),
            ),
        )


def _pull(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        skill_id = _id(http, options.skill)
        path = f"/skills/{skill_id}/versions/{options.version}/content" if options.version else f"/skills/{skill_id}/content"
        answer = http.get(path, follow_redirects=True)
        if answer.is_error:
            answer_of(answer)
    packed = bundle.of_zip(answer.content)
    folder = options.into / packed.name
    if folder.exists():
        raise TargetError(f"{folder} exists already; --into takes another place.")
    for entry in bundle.unpacked(packed.archive):
        target = folder / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(entry.content)
        if entry.is_executable:
            target.chmod(target.stat().st_mode | 0o111)
    return told(options, {"path": str(folder), "name": packed.name, "files": packed.files}, f"{folder}: {packed.files} files")


def _delete(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        skill_id = _id(http, options.skill)
        path = f"/skills/{skill_id}" + (f"/versions/{options.version}" if options.version else "")
        gone = answer_of(http.delete(path))
    said = f"{skill_id} is deleted." if not options.version else f"Version {options.version} of {skill_id} is deleted."
    return told(options, gone, said)


def _validate(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    packed = _bundle(options.path)
    found = {"name": packed.name, "description": packed.description, "files": packed.files, "packed_bytes": len(packed.archive)}
    sentence = f"{packed.name}: {packed.files} files, {len(packed.archive)} bytes packed. {packed.description}"
    return told(options, found, sentence)


def _bundle(path: Path) -> SkillBundle:
    """The files of an upload, checked as the service checks them."""
    try:
        if path.is_dir():
            return bundle.of_files(_files(path.resolve()))
        return bundle.of_zip(path.read_bytes())
    except SkillProblem as problem:
        raise TargetError(f"{path} is no skill: {problem}") from problem
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror}.") from error


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """A folder's files; hidden ones (``.git``) stay at home, and links are refused: what they name would be sent."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if any(part.startswith(".") or part == "__pycache__" for part in name.parts):
            continue
        if path.is_symlink():
            raise SkillProblem(f"'{name}' is a symbolic link; a skill has files and folders only.")
        if path.is_file():
            yield f"{folder.name}/{name.as_posix()}", path.read_bytes()


def _named(http: httpx.Client, name: str) -> list[str]:
    return [skill["id"] for skill in entries(http, "/skills") if skill["name"] == name]


def _id(http: httpx.Client, named: str) -> str:
    if named.startswith("skill_"):
        return named
    match _named(http, named):
        case [skill_id]:
            return skill_id
        case []:
            raise TargetError(f"There is no skill '{named}'; 'moorage skills' lists them.")
        case several:
            raise TargetError(f"{len(several)} skills are called '{named}': {', '.join(several)}. Name one by its id.")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:59] + "…"
