"""Identifiers, as the OpenAI API shapes them: a prefix that names the kind, then random text.

Ids made by clients (``msg_<uuid>``, ``fco_<uuid>``) arrive in input items and are accepted as they are; only the ids made here
have this form. Source of the prefixes and lengths: recorded live responses.
"""

import secrets
import string
from typing import Final

_BASE62: Final = string.ascii_letters + string.digits


def new_id(prefix: str) -> str:
    """A fresh id such as ``resp_<48 hex digits>``; 192 random bits, so that two never meet."""
    return f"{prefix}_{secrets.token_hex(24)}"


def new_call_id() -> str:
    """A tool call's id: ``call_`` and 24 base-62 characters (143 random bits)."""
    return "call_" + "".join(secrets.choice(_BASE62) for _ in range(24))


def new_file_id() -> str:
    """A file's id: ``file-`` and 24 base-62 characters."""
    return "file-" + "".join(secrets.choice(_BASE62) for _ in range(24))


def new_container_file_id() -> str:
    """A container file's id: ``cfile_`` and 32 hex digits."""
    return f"cfile_{secrets.token_hex(16)}"
