"""A container's saved files as folders. Only files are stored; a folder is the common part of their paths."""

from collections.abc import Sequence

from moorage.containers.store import ContainerFileRecord
from moorage.dataclass import dataclass
from moorage.wire.operator_answers import TreeEntry


@dataclass(slots=True)
class _Folder:
    path: str
    files: int = 0
    """Below it, however deep."""
    bytes: int = 0


def entries_below(path: str, files: Sequence[ContainerFileRecord], depth: int | None) -> list[TreeEntry]:
    """The folders and files below a folder, as deep as ``depth`` levels (None for all), in the order of their paths. Empty for a folder
    that is not there."""
    base = "/" + path.strip("/")
    folders: dict[str, _Folder] = {}
    shown: list[TreeEntry] = []
    for file in files:
        names = _names_below(base, file.path)
        if not names:
            continue
        for level in range(1, len(names)):
            if depth is None or level <= depth:
                folder = folders.setdefault(f"{base}/{'/'.join(names[:level])}", _Folder(f"{base}/{'/'.join(names[:level])}"))
                folder.files += 1
                folder.bytes += file.bytes
        if depth is None or len(names) <= depth:
            shown.append(_file(file))
    return sorted([*map(_folder, folders.values()), *shown], key=lambda entry: str(entry["path"]))


def _names_below(base: str, path: str) -> list[str]:
    return path.removeprefix(f"{base}/").split("/") if path.startswith(f"{base}/") else []


def _folder(folder: _Folder) -> TreeEntry:
    return {
        "id": folder.path,
        "object": "container.tree.entry",
        "type": "folder",
        "path": folder.path,
        "bytes": folder.bytes,
        "files": folder.files,
    }


def _file(file: ContainerFileRecord) -> TreeEntry:
    return {
        "id": file.id,
        "object": "container.tree.entry",
        "type": "file",
        "path": file.path,
        "bytes": file.bytes,
        "created_at": file.created_at,
        "source": file.source,
        "file_id": file.upload_id or None,
    }
