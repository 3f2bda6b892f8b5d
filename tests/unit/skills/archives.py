"""Zip files as they come in, odd ones included."""

import io
import stat
import zipfile
from collections.abc import Mapping

MANIFEST = b"---\nname: make-tables\ndescription: Makes tables.\n---\n# How\n"


def zip_of(files: Mapping[str, bytes], *, method: int = zipfile.ZIP_DEFLATED, modes: Mapping[str, int] | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name, (2026, 11, 1, 12, 0, 0))
            info.external_attr = (modes or {}).get(name, stat.S_IFREG | 0o644) << 16
            archive.writestr(info, content, method)
    return buffer.getvalue()


def skill(**files: bytes) -> dict[str, bytes]:
    """A skill's folder; ``__`` in a name stands for ``/``, and what has no dot is a text."""
    named = {name.replace("__", "/") + ("" if "." in name else ".txt"): content for name, content in files.items()}
    return {"tables/SKILL.md": MANIFEST} | {f"tables/{name}": content for name, content in named.items()}
