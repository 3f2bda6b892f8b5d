"""Which deployment a command speaks to.

With ``MOORAGE_TABLE`` in the environment it is the one described there, on AWS or LocalStack (boto3 finds the rest by ``AWS_*``).
Otherwise it is the local stack whose state lies in ``MOORAGE_STATE_DIR``, by default ``.moorage`` in this folder or one above it.
Its API is ``MOORAGE_URL`` (or ``OPENAI_BASE_URL``) with ``MOORAGE_API_KEY`` (or ``OPENAI_API_KEY``); a local stack says both itself.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import boto3
import httpx

from moorage.store.table import Table

_LOCAL_TABLE: Final = "moorage"
_SECONDS_MAX: Final = 120.0


class TargetError(Exception):
    """No deployment can be found; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Target:
    url: str | None
    api_key: str | None = field(repr=False)
    table_name: str
    aws: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments of boto3's clients; empty where the environment says it all."""
    state_dir: Path | None = None
    """Of a local stack."""

    @property
    def is_local(self) -> bool:
        return self.state_dir is not None

    def table(self) -> Table:
        return Table(boto3.client("dynamodb", **self.aws), self.table_name, ThreadPoolExecutor(4))

    def http(self) -> httpx.Client:
        """A client of the API."""
        if not self.url or not self.api_key:
            raise TargetError("Set MOORAGE_URL (https://.../v1) and MOORAGE_API_KEY: they say where the API is and who asks.")
        return httpx.Client(
            base_url=self.url, headers={"authorization": f"Bearer {self.api_key}"}, timeout=httpx.Timeout(_SECONDS_MAX)
        )


def find(environ: Mapping[str, str]) -> Target:
    """The deployment that the environment or the current folder points to."""
    url = environ.get("MOORAGE_URL") or environ.get("OPENAI_BASE_URL")
    api_key = environ.get("MOORAGE_API_KEY") or environ.get("OPENAI_API_KEY")
    if environ.get("MOORAGE_TABLE"):
        return Target(url, api_key, environ["MOORAGE_TABLE"])
    state_dir = local_state(environ)
    if state_dir is None:
        raise TargetError(
            "There is no local stack here (no .moorage/ with one that has been started), and MOORAGE_TABLE is not set. "
            "Start one with 'moorage up', or set MOORAGE_TABLE, MOORAGE_URL and MOORAGE_API_KEY for a deployment on AWS."
        )
    said = _variables(state_dir / "env")
    return Target(
        said.get("OPENAI_BASE_URL"),
        said.get("OPENAI_API_KEY"),
        _LOCAL_TABLE,
        {
            "endpoint_url": (state_dir / "aws" / "endpoint").read_text().strip(),
            "region_name": "us-east-1",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
        },
        state_dir,
    )


def local_state(environ: Mapping[str, str]) -> Path | None:
    """The state directory of a local stack that has been started, running or not."""
    named = environ.get("MOORAGE_STATE_DIR")
    here = Path.cwd()
    candidates = [Path(named)] if named else [folder / ".moorage" for folder in (here, *here.parents)]
    return next((path for path in candidates if (path / "env").exists() and (path / "aws" / "endpoint").exists()), None)


def answer_of(response: httpx.Response) -> dict[str, Any]:
    """The JSON of an answer; raises :class:`TargetError` with the API's own sentence for refusals."""
    if response.is_success:
        answer: dict[str, Any] = response.json()
        return answer
    try:
        message = response.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = f"HTTP {response.status_code}"
    raise TargetError(message)


def _variables(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
