"""What an archive of an agent holds, read once and checked: nothing is written before all of it is known to be whole."""

import re
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import partial
from typing import Any, Final

import orjson

from moorage import limits
from moorage.agents.archive_format import ArchiveEntry, ArchiveReader
from moorage.agents.archive_shapes import (
    ARCHIVED_AGENT,
    ARCHIVED_LINE,
    ARCHIVED_NOTES,
    ARCHIVED_RESPONSE,
    ARCHIVED_SESSION,
    ARCHIVED_VERSION,
    FORMAT,
    VERSION,
)
from moorage.agents.exports import OPENED, response_name
from moorage.agents.settings import checked
from moorage.dataclass import dataclass
from moorage.errors import ApiError, bad_request
from moorage.errors.agents import broken_archive
from moorage.files.store import StoredFile
from moorage.loop.budget import check_budget
from moorage.loop.notes import Notes
from moorage.parallel import beside
from moorage.runtime import ModelAccess, Runtime
from moorage.wire.types import Item
from moorage.wire.validation import Fields
from moorage.wire.values import holds_more

_RESPONSE_DIGITS: Final = re.compile(rb"[0-9a-f]{40}")


@dataclass(slots=True)
class Renaming:
    """New ids for old ones, wherever they stand in a text: they are random, so that they mean nothing else."""

    responses: dict[bytes, bytes] = field(default_factory=dict)
    """The digits that a response shares with its items."""
    container: tuple[bytes, bytes] | None = None

    def add(self, old_id: str, new_id: str) -> None:
        self.responses[_digits(old_id)] = _digits(new_id)

    def of(self, text: bytes) -> bytes:
        text = _RESPONSE_DIGITS.sub(lambda found: self.responses.get(found[0], found[0]), text)
        return text if self.container is None else text.replace(*self.container)


def _digits(response_id: str) -> bytes:
    return response_id.removeprefix("resp_")[:40].encode()


@dataclass(slots=True)
class ArchivedItems:
    """A response of an archive."""

    head: Fields
    """``archive_shapes.py: ArchivedResponse``."""
    past: list[Item] = field(default_factory=list)
    input: list[Item] = field(default_factory=list)
    output: list[Item] = field(default_factory=list)


@dataclass(slots=True)
class ArchivePlan:
    """What is where in an archive that is whole."""

    agent: Fields = field(default_factory=dict)
    entries: dict[str, ArchiveEntry] = field(default_factory=dict)
    sessions: list[tuple[str, Fields]] = field(default_factory=list)
    """The folder of each, and what is true of it (``archive_shapes.py: ArchivedSession``)."""
    response_ids: set[str] = field(default_factory=set)


async def read_plan(runtime: Runtime, file: StoredFile) -> ArchivePlan:
    """Raises :class:`~moorage.errors.ApiError` for an archive that is not whole, or that says what cannot be."""
    plan = ArchivePlan()
    due = _due(plan)
    async for entry, text in ArchiveReader(runtime.stores.files.content(file)).entries():
        if entry.name != next(due, None):
            raise broken_archive(f"entry {len(plan.entries) + 1} is not the one that is due there.")
        plan.entries[entry.name] = entry
        try:
            await _check(runtime.models, plan, entry, text)
        except ApiError as error:
            if error.code == "invalid_archive":
                raise
            raise broken_archive(f"'{entry.name}' says what cannot be. {error.message}") from error
    missing = next(due, None)
    if missing is not None:
        raise broken_archive(f"'{missing}' is missing.")
    return plan


def version_name(number: int) -> str:
    return f"versions/{number:04d}.json"


def past_name(folder: str) -> str:
    return f"{folder}/past.jsonl"


def file_name(folder: str, kind: str, position: int) -> str:
    """Of a file of an environment (``files``), or of an artifact (``artifacts``), by its place from 1."""
    return f"{folder}/{kind}/{position:06d}"


def _due(plan: ArchivePlan) -> Iterator[str]:
    """The names of the entries, each once it is known from those before it."""
    yield "agent.json"
    for number in range(1, plan.agent["versions"] + 1):
        yield version_name(number)
    for position in range(1, plan.agent["sessions"] + 1):
        folder = f"sessions/{position:04d}"
        yield f"{folder}/session.json"
        session = plan.sessions[-1][1]
        if "begins_with" in session:
            yield past_name(folder)
        for number, turn in enumerate(session["turns"], 1):
            for place in range(1, len(turn["responses"]) + 1):
                yield response_name(folder, number, place)
        for kind in ("files", "artifacts"):
            for place in range(1, len(session[kind]) + 1):
                yield file_name(folder, kind, place)


async def _check(models: ModelAccess, plan: ArchivePlan, entry: ArchiveEntry, text: bytes) -> None:
    folder, _, name = entry.name.rpartition("/")
    if name == "agent.json":
        plan.agent = await beside(len(text), lambda: _agent(text))
    elif folder == "versions":
        version = await beside(len(text), lambda: ARCHIVED_VERSION(_object(text)))
        await _check_settings(models, version["settings"], len(text))
    elif name == "session.json":
        session = await beside(len(text), lambda: ARCHIVED_SESSION(_object(text, limits.AGENT_ARCHIVE_VALUES_MAX)))
        await _check_settings(models, session["settings"], len(text))
        check_budget(models.catalog, session["settings"]["model"], session.get("budget"))
        _check_session(plan, session)
        plan.sessions.append((folder, session))
    elif name.endswith(".jsonl"):
        read = await response_of(text, Renaming(), lambda content: content)
        _check_response(plan, entry.name, read)
    else:
        _check_size(plan, entry)


def _agent(text: bytes) -> Fields:
    said = _object(text)
    if said.get("format") != FORMAT:
        raise broken_archive("it is no archive that 'export' has made.")
    if said.get("version") != VERSION:
        raise broken_archive(f"it is of version {said.get('version')!r:.20}, and this deployment reads version {VERSION}.")
    return ARCHIVED_AGENT(said)


def _object(text: bytes, values_max: int = limits.REQUEST_VALUES_MAX) -> Fields:
    """As bounded as a request's body, which it is not: its faults are told of the entry. Raises :class:`ApiError`."""
    if len(text) > limits.REQUEST_BODY_BYTES_MAX:
        raise bad_request(f"It has more than {limits.REQUEST_BODY_BYTES_MAX} bytes.")
    if holds_more(text, values_max):
        raise bad_request(f"It has more than {values_max} JSON values.")
    try:
        said = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"It is no JSON: {error}.") from error
    if type(said) is not dict:
        raise bad_request("It is no JSON object.")
    return said


async def _check_settings(models: ModelAccess, settings: Fields, size: int) -> None:
    """Whether ``/v1/responses`` would take them. This deployment need not have their model: a change of the agent mends that."""
    await beside(size, lambda: checked(settings, web_search=models.web_search))


def _check_session(plan: ArchivePlan, session: Fields) -> None:
    if session["agent_version"] > plan.agent["versions"]:
        raise broken_archive("a session is of a version of the agent that is not there.")
    numbers = [turn["number"] for turn in session["turns"]]
    if numbers != sorted(set(numbers)):
        raise broken_archive("the turns of a session are not in their order.")
    if any(artifact["turn"] not in numbers for artifact in session["artifacts"]):
        raise broken_archive("an artifact is of a turn that is not there.")
    if "environment" not in session and (session["files"] or session["artifacts"]):
        raise broken_archive("a session has files, and no environment.")
    wanted = [response_id for turn in session["turns"] for response_id in turn["responses"]]
    wanted += [session["begins_with"]] if "begins_with" in session else []
    if len(set(wanted)) < len(wanted) or plan.response_ids & set(wanted):
        raise broken_archive("two of its responses have the same id.")
    plan.response_ids |= set(wanted)


def _check_response(plan: ArchivePlan, name: str, read: ArchivedItems) -> None:
    folder, session = plan.sessions[-1]
    due = session.get("begins_with")
    if name != past_name(folder):
        number, place = (int(part.removesuffix(".jsonl")) for part in name.split("/")[-2:])
        due = session["turns"][number - 1]["responses"][place - 1]
    if read.head["id"] != due:
        raise broken_archive(f"'{name}' is of another response.")
    if read.head["status"] == "failed" and "error" not in read.head:
        raise broken_archive(f"'{name}' has failed, and does not say why.")


def _check_size(plan: ArchivePlan, entry: ArchiveEntry) -> None:
    kind, place = entry.name.split("/")[-2:]
    size = plan.sessions[-1][1][kind][int(place) - 1]["bytes"]
    if size != entry.bytes:
        raise broken_archive(f"'{entry.name}' has {entry.bytes} bytes, and {size} are due.")


async def response_of(text: bytes, renaming: Renaming, seal: Callable[[str], str]) -> ArchivedItems:
    """The content of a response's entry. ``seal`` closes what the archive has in clear text. Raises :class:`ApiError`."""
    return await beside(len(text), lambda: _response_of(renaming.of(text), seal))


def _response_of(text: bytes, seal: Callable[[str], str]) -> ArchivedItems:
    if holds_more(text, limits.AGENT_ARCHIVE_VALUES_MAX):
        raise broken_archive(f"a response has more than {limits.AGENT_ARCHIVE_VALUES_MAX} JSON values.")
    first, *lines = text.split(b"\n")
    read = ArchivedItems(_line(1, lambda: ARCHIVED_RESPONSE(_object(first))))
    if len(lines) > limits.AGENT_ARCHIVE_ITEMS_MAX:
        raise broken_archive(f"a response has more than {limits.AGENT_ARCHIVE_ITEMS_MAX} items.")
    into: dict[str, list[Item]] = {"past": read.past, "input": read.input, "output": read.output}

    def opened(line: bytes) -> Fields:
        said = _object(line)
        _close(said.get("item"), seal)
        return ARCHIVED_LINE(said)

    for number, line in enumerate(lines, 2):
        said = _line(number, partial(opened, line))
        into[said["of"]].append(said["item"])
    return read


def _line(number: int, read: Callable[[], Fields]) -> Fields:
    """One of an entry's, by its number from 1, which its faults name."""
    try:
        return read()
    except ApiError as error:
        raise bad_request(f"Line {number}: {error.message}", code=error.code) from error


def _close(item: Any, seal: Callable[[str], str]) -> None:
    """Seal what the archive has in clear text of something that is to be an item. The notes of a compaction are read by the loop as its
    own from then on: so they are checked like all that is not sealed."""
    if (
        not isinstance(item, dict)
        or item.pop(OPENED, False) is not True
        or not isinstance(content := item.get("encrypted_content"), str)
    ):
        return

    def checked_notes(text: bytes) -> Fields:
        fields = _object(text)
        recent = fields.get("recent")
        for each in recent if isinstance(recent, list) else ():
            _close(each, seal)
        return ARCHIVED_NOTES(fields)

    item["encrypted_content"] = seal(Notes.unpacked(content, checked_notes).packed() if item.get("type") == "compaction" else content)
