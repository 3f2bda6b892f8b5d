"""A skill's bundle: one folder with one SKILL.md, from a zip or from the files of a folder.

Whatever comes in is checked whole before anything of it is kept, and packed anew: names relative to the skill's folder, sorted, no
times, two modes. So the same files are the same bundle however they were sent, and nothing that a zip can hold beside files (links,
devices, absolute names, names that a file system would take for one another) lives on in what is stored.
"""

import hashlib
import io
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.skills import front_matter
from moorage.skills.front_matter import SkillProblem

MANIFEST: Final = "SKILL.md"
SKILLS: Final = "/home/oai/skills"
"""Where a sandbox has its skills, each a folder (as OpenAI's containers have them)."""
_ENCRYPTED: Final = 0x1
"""Bits of a zip entry's flags (PKWARE APPNOTE 6.3.10, section 4.4.4)."""
_METHODS: Final = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_PLAIN, _EXECUTABLE = 0o644, 0o755
_LEFT_OUT: Final = ("__MACOSX", ".DS_Store")
"""What macOS's Finder puts into every archive and folder."""
_ZIP_MAGIC: Final = b"PK\x03\x04"
_DOCUMENTS: Final = (
    ".apk", ".docm", ".docx", ".dotx", ".epub", ".jar", ".npz", ".odg", ".odp", ".ods", ".odt", ".potx", ".pptm", ".pptx", ".vsdx",
    ".whl", ".xlsm", ".xlsx", ".xltx",
)  # fmt: skip
"""Documents that are zips themselves, and of use to a skill."""


@dataclass(frozen=True, slots=True)
class BundleFile:
    """One file of a bundle."""

    path: str
    """Relative to the skill's folder, with ``/``."""
    content: bytes
    is_executable: bool = False


@dataclass(frozen=True, slots=True)
class SkillBundle:
    name: str
    description: str
    digest: str
    """SHA-256 (hex) of names, modes and contents: the same for the same files, however they were packed."""
    files: int
    archive: bytes
    """A zip with one folder, called as the skill is."""


def of_zip(data: bytes) -> SkillBundle:
    """The bundle in a zip file with a single top-level folder. Raises :class:`SkillProblem`."""
    return of_entries(read_zip(data))


def read_zip(data: bytes) -> list[BundleFile]:
    """The files in a zip file, each checked by itself, in its order. Raises :class:`SkillProblem`."""
    if len(data) > limits.SKILL_ZIP_BYTES_MAX:
        raise SkillProblem(f"The zip file has {len(data)} bytes; at most {limits.SKILL_ZIP_BYTES_MAX} are allowed.")
    try:
        # Finder writes names in UTF-8 without the flag that says so.
        with zipfile.ZipFile(io.BytesIO(data), metadata_encoding="utf-8") as archive:
            infos = archive.infolist()
            _check_entries(infos)
            return [_entry(archive, info) for info in infos if not info.is_dir() and not _is_left_out(info.filename)]
    except UnicodeDecodeError as error:
        name = shown(error.object.decode("utf-8", "replace"))
        raise SkillProblem(f"The name '{name}' is not UTF-8; use a tool that writes UTF-8 names.") from error
    except _UNREADABLE as error:
        raise SkillProblem(f"The zip file cannot be read: {error}.") from error


def of_files(files: Iterable[tuple[str, bytes]]) -> SkillBundle:
    """The bundle of a folder's files, each with its path from the folder's own name on. Raises :class:`SkillProblem`."""
    entries = [BundleFile(path, content, _is_script(content)) for path, content in files if not _is_left_out(path)]
    for entry in entries:
        _check_name(entry.path)
        _check_content(entry.path, entry.content)
    return of_entries(entries)


def of_markdown(manifest: bytes) -> SkillBundle:
    """The bundle of a SKILL.md alone. Raises :class:`SkillProblem`."""
    return of_files([(f"skill/{MANIFEST}", manifest)])


def unpacked(archive: bytes) -> Iterator[BundleFile]:
    """The files of a bundle that was packed here. Raises :class:`SkillProblem` for one that was not, or was damaged since."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as packed:
            for info in packed.infolist():
                _, _, path = info.filename.partition("/")
                _check_name(path)
                yield BundleFile(path, packed.read(info), bool(info.external_attr >> 16 & 0o111))
    except _UNREADABLE as error:
        raise SkillProblem(f"The bundle cannot be read: {error}.") from error


def _check_entries(infos: Sequence[zipfile.ZipInfo]) -> None:
    """All that can be said without unpacking anything."""
    if len(infos) > limits.SKILL_ZIP_ENTRIES_MAX:
        raise SkillProblem(f"The zip file has {len(infos)} entries; at most {limits.SKILL_ZIP_ENTRIES_MAX} are allowed.")
    for info in infos:
        name = info.orig_filename
        if info.flag_bits & _ENCRYPTED:
            raise SkillProblem(f"'{shown(name)}' is encrypted.")
        _check_name(name.removesuffix("/") if info.is_dir() else name)
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise SkillProblem(f"'{shown(name)}' is {_KINDS.get(kind, 'a special file')}; a skill has files and folders only.")
        if info.compress_type not in _METHODS:
            raise SkillProblem(f"'{shown(name)}' is compressed by a method that is not supported; use deflate.")
        if info.file_size > limits.SKILL_FILE_BYTES_MAX:
            raise _too_large(name, info.file_size)
    total = sum(info.file_size for info in infos)
    if total > limits.SKILL_BYTES_MAX:
        raise SkillProblem(f"The files have {total} bytes in all; at most {limits.SKILL_BYTES_MAX} are allowed.")


_UNREADABLE: Final = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, IndexError, NotImplementedError, RuntimeError
)  # fmt: skip
"""What zipfile raises at damaged archives, seen by changing bytes of a sound one."""

_KINDS: Final = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> BundleFile:
    with archive.open(info) as file:
        content = file.read(info.file_size + 1)  # what it declares was checked; a reader stops there, whatever the stream holds
    if len(content) != info.file_size:
        raise SkillProblem(f"'{shown(info.filename)}' does not have the size that the zip file says.")
    _check_content(info.filename, content)
    return BundleFile(info.filename, content, bool(info.external_attr >> 16 & 0o111) or _is_script(content))


def _check_name(name: str) -> None:
    parts = name.split("/")
    reason = None
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        reason = "it has a control character"
    elif "\\" in name:
        reason = "it has a backslash; folders are separated by '/'"
    elif name.startswith("/") or name[1:2] == ":":
        reason = "it is absolute"
    elif ".." in parts:
        reason = "it leads out of the folder"
    elif any(part in ("", ".") for part in parts):
        reason = "it has an empty part or '.'"
    elif any(len(part.encode()) > limits.SKILL_NAME_BYTES_MAX for part in parts):
        reason = f"a part of it has more than {limits.SKILL_NAME_BYTES_MAX} bytes"
    elif len(name.encode()) > limits.SKILL_PATH_BYTES_MAX:
        reason = f"it has more than {limits.SKILL_PATH_BYTES_MAX} bytes"
    if reason is not None:
        raise SkillProblem(f"The name '{shown(name)}' is not allowed: {reason}.")


def _check_content(name: str, content: bytes) -> None:
    if len(content) > limits.SKILL_FILE_BYTES_MAX:
        raise _too_large(name, len(content))
    lowered = name.lower()
    if lowered.endswith(".zip") or (content.startswith(_ZIP_MAGIC) and not lowered.endswith(_DOCUMENTS)):
        raise SkillProblem(f"'{shown(name)}' is a zip file inside the bundle; unpack it into the folder.")


def of_entries(entries: Sequence[BundleFile]) -> SkillBundle:
    """The bundle of a folder's files, each checked by itself. Raises :class:`SkillProblem`."""
    if len(entries) > limits.SKILL_FILES_MAX:
        raise SkillProblem(f"The bundle has {len(entries)} files; at most {limits.SKILL_FILES_MAX} are allowed.")
    files = sorted(_in_folder(entries), key=lambda entry: entry.path)
    check_distinct(files)
    manifest = _manifest(files)
    head = front_matter.read(manifest.content, manifest.path)
    digest = hashlib.sha256()
    for entry in files:
        digest.update(f"{entry.path}\0{int(entry.is_executable)}\0".encode() + hashlib.sha256(entry.content).digest())
    archive = _packed(head.name, files)
    if len(archive) > limits.SKILL_ZIP_BYTES_MAX:
        raise SkillProblem(f"The bundle has {len(archive)} bytes when packed; at most {limits.SKILL_ZIP_BYTES_MAX} are allowed.")
    return SkillBundle(head.name, head.description, digest.hexdigest(), len(files), archive)


def _in_folder(entries: Sequence[BundleFile]) -> Iterator[BundleFile]:
    """The files by their names inside the one folder."""
    if not entries:
        raise SkillProblem("The bundle has no files.")
    folders = {entry.path.partition("/")[0] for entry in entries}
    if len(folders) > 1 or any("/" not in entry.path for entry in entries):
        raise SkillProblem("The bundle must have a single top-level folder that holds all files, such as 'my-skill/SKILL.md'.")
    for entry in entries:
        yield BundleFile(entry.path.partition("/")[2], entry.content, entry.is_executable)


def check_distinct(files: Sequence[BundleFile]) -> None:
    """No two names that some file system takes for the same, and no file in the place of another's folder. Raises
    :class:`SkillProblem`."""
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    for entry in files:
        folded = _folded(entry.path)
        if folded in seen:
            raise SkillProblem(f"'{shown(seen[folded])}' and '{shown(entry.path)}' are the same name on some file systems.")
        seen[folded] = entry.path
        parts = folded.split("/")
        folders |= {"/".join(parts[:depth]): entry.path for depth in range(1, len(parts))}
    for folder in folders.keys() & seen.keys():
        raise SkillProblem(f"'{shown(seen[folder])}' is a file, and '{shown(folders[folder])}' needs a folder of that name.")


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _manifest(files: Sequence[BundleFile]) -> BundleFile:
    found = [entry for entry in files if entry.path.rpartition("/")[2].lower() == MANIFEST.lower()]
    if not found:
        raise SkillProblem("The bundle has no SKILL.md.")
    if len(found) > 1:
        raise SkillProblem(f"The bundle must have exactly one SKILL.md, and has {', '.join(shown(entry.path) for entry in found)}.")
    if "/" in found[0].path:
        raise SkillProblem(f"SKILL.md must lie directly in the top-level folder, and not at '{shown(found[0].path)}'.")
    return found[0]


def _packed(name: str, files: Sequence[BundleFile]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in files:
            info = zipfile.ZipInfo(f"{name}/{entry.path}", _EPOCH)
            info.create_system = 3  # Unix, or nobody looks at the mode
            info.external_attr = (stat.S_IFREG | (_EXECUTABLE if entry.is_executable else _PLAIN)) << 16
            archive.writestr(info, entry.content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _is_script(content: bytes) -> bool:
    """Files of a form have no mode."""
    return content.startswith(b"#!")


def _is_left_out(name: str) -> bool:
    return any(part in _LEFT_OUT for part in name.split("/"))


def _too_large(name: str, size: int) -> SkillProblem:
    return SkillProblem(f"'{shown(name)}' has {size} bytes; at most {limits.SKILL_FILE_BYTES_MAX} are allowed for a file.")


def shown(name: str) -> str:
    """For messages: bounded, and without what moves a cursor."""
    return "".join(character if character.isprintable() else "\ufffd" for character in name[:200])
