"""Bodies of ``multipart/form-data``, as the OpenAPI document tells of them."""

from typing import Final

from moorage import limits
from moorage.wire.resources import PURPOSES
from moorage.wire.schema import JsonSchema

_UPLOADED: Final[JsonSchema] = {"type": "string", "contentMediaType": "application/octet-stream"}


def form_of(name: str) -> JsonSchema:
    """One file under this name."""
    return {"type": "object", "properties": {name: _UPLOADED}, "required": [name], "additionalProperties": False}


FILE_FORM: Final[JsonSchema] = {
    "type": "object",
    "properties": {
        "file": _UPLOADED,
        "purpose": {"type": "string", "enum": list(PURPOSES)},
        "expires_after[anchor]": {"const": "created_at"},
        "expires_after[seconds]": {
            "type": "integer",
            "minimum": limits.FILE_EXPIRES_SECONDS_MIN,
            "maximum": limits.FILE_EXPIRES_SECONDS_MAX,
        },
    },
    "required": ["file", "purpose"],
    "additionalProperties": False,
}

SKILL_FORM: Final[JsonSchema] = {
    "type": "object",
    "properties": {
        "files": {"anyOf": [_UPLOADED, {"type": "array", "items": _UPLOADED, "maxItems": limits.SKILL_FILES_MAX}]},
    },
    "required": ["files"],
    "additionalProperties": False,
}
SKILL_VERSION_FORM: Final = {**SKILL_FORM, "properties": {**SKILL_FORM["properties"], "default": {"type": "boolean"}}}
