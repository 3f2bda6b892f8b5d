"""A command's words for known failures. Imported when one comes."""

import httpx
from botocore.exceptions import BotoCoreError, ClientError

from moorage.cli.target import TargetError, refused, unreachable
from moorage.errors import MoorageError
from moorage.settings import SettingsError


def sentence(error: Exception) -> str | None:
    """None for an unforeseen error: its trace says more."""
    match error:
        case TargetError() | SettingsError() | MoorageError():
            return str(error)
        case httpx.TransportError():
            return unreachable(error)
        case ClientError() | BotoCoreError():
            return refused(error)
        case OSError(filename=str(path), strerror=str(reason)):
            return f"{path} cannot be read or written: {reason}."
    return None
