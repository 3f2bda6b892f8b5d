"""Zip files as they come in, odd ones included."""

import base64
import io
import json
import stat
import zipfile
from collections.abc import Mapping
from typing import Any

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


def plugin(**fields: Any) -> dict[str, bytes]:
    """A plugin with one skill; ``fields`` are further ones of its manifest."""
    manifest = {"name": "depot", "description": "Knows the depot."} | fields
    files = {f"skills/{name}": content for name, content in skill().items()}
    return {".codex-plugin/plugin.json": json.dumps(manifest).encode()} | files


def asked_plugin(files: Mapping[str, bytes], **fields: Any) -> Any:
    """What a request asks for: the zip of ``files``, by the name and the description of :func:`plugin`."""
    source = {"type": "base64", "media_type": "application/zip", "data": base64.b64encode(zip_of(files)).decode()}
    return {"type": "inline", "name": "depot", "description": "Knows the depot.", "source": source} | fields
