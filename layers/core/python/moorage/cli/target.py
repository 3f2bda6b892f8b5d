"""Which deployment a command speaks to.

With ``MOORAGE_URL`` or ``MOORAGE_TABLE`` in the environment it is the one described there, on AWS or LocalStack (boto3 finds the rest
by ``AWS_*``). Otherwise it is the local stack whose state lies in ``MOORAGE_STATE_DIR``, by default ``.moorage`` in this folder or one
above it, and if there is none, what ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY`` say.
"""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import boto3
import httpx
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, NoCredentialsError, NoRegionError

from moorage.cli.at_end import at_end, threads
from moorage.dataclass import dataclass
from moorage.local.exports import read_exports
from moorage.local.stores import AwsStores, store_place
from moorage.local.takeover import STORE
from moorage.store.dynamodb import DynamoTable
from moorage.store.sqlite_table import table_in
from moorage.store.table import Table

_SECONDS_MAX: Final = 300.0
"""A sandbox on Fargate takes up to a minute to start, and its first image longer."""
AWS_CONFIG: Final = Config(connect_timeout=5, retries={"mode": "standard", "total_max_attempts": 2})
_INVALID_CREDENTIALS: Final = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "InvalidSignatureException", "UnrecognizedClientException"}
)


class TargetError(Exception):
    """No deployment can be found or asked; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Target:
    url: str | None
    api_key: str | None = field(repr=False)
    table_name: str | None
    aws: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments of boto3's clients."""
    state_dir: Path | None = None
    """Of a local stack."""

    @property
    def is_local(self) -> bool:
        return self.state_dir is not None

    @property
    def has_table(self) -> bool:
        return self.is_local or self.table_name is not None

    def table(self) -> Table:
        if self.state_dir is not None and self.table_name is None:
            table = table_in(self.state_dir / STORE)
            at_end(table.journal.close)
            return table
        if self.table_name is None:
            raise TargetError("Set MOORAGE_TABLE: the keys lie in the deployment's table. 'make deployed' shows its name.")
        client = boto3.client("dynamodb", **self.aws, config=AWS_CONFIG)
        at_end(client.close)
        return DynamoTable(client, self.table_name, threads(4))

    def http(self) -> httpx.Client:
        """A client of the API. Raises :class:`TargetError` for an address or a key that cannot be one."""
        if not self.url or not self.api_key:
            raise TargetError("Set MOORAGE_URL (https://.../v1) and MOORAGE_API_KEY: they say where the API is and who asks.")
        if urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).netloc:
            raise TargetError(f"'{self.url}' is no address of an API; MOORAGE_URL takes one such as https://api.example.com/v1.")
        if not self.api_key.isascii() or not self.api_key.isprintable() or " " in self.api_key:
            raise TargetError("MOORAGE_API_KEY holds characters that no key has. 'moorage keys create' makes a key.")
        return httpx.Client(
            base_url=self.url, headers={"authorization": f"Bearer {self.api_key}"}, timeout=httpx.Timeout(_SECONDS_MAX, connect=10)
        )


def find(environ: Mapping[str, str]) -> Target:
    """The deployment that the environment or the current folder points to."""
    region = {"region_name": aws_region(environ)}
    if environ.get("MOORAGE_URL") or environ.get("MOORAGE_TABLE"):
        return Target(environ.get("MOORAGE_URL"), environ.get("MOORAGE_API_KEY"), environ.get("MOORAGE_TABLE"), region)
    if (state_dir := local_state(environ)) is not None:
        return _local(state_dir, environ)
    if environ.get("OPENAI_BASE_URL"):
        return Target(environ["OPENAI_BASE_URL"], environ.get("OPENAI_API_KEY"), None, region)
    raise TargetError(
        "There is no local stack here (no .moorage/ with one that has been started), and the environment names no other. Start one "
        "with 'moorage up', or set MOORAGE_URL, MOORAGE_API_KEY and MOORAGE_TABLE: 'make deployed' shows them."
    )


def aws_region(environ: Mapping[str, str]) -> str | None:
    """None leaves it to the AWS profile. boto3 itself reads only the second variable; the CDK and the AWS CLI read both."""
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or None


def _local(state_dir: Path, environ: Mapping[str, str]) -> Target:
    """Its table is in its folder, or in the place that the same variable names for the stack."""
    said, place = read_exports(state_dir / "env"), store_place(environ, state_dir)
    table = place.table if isinstance(place, AwsStores) else None
    return Target(said.get("OPENAI_BASE_URL"), said.get("OPENAI_API_KEY"), table, {"region_name": aws_region(environ)}, state_dir)


def local_state(environ: Mapping[str, str]) -> Path | None:
    """The state directory of a local stack that has been started, running or not."""
    named = environ.get("MOORAGE_STATE_DIR")
    here = Path.cwd()
    candidates = [Path(named)] if named else [folder / ".moorage" for folder in (here, *here.parents)]
    return next((path for path in candidates if (path / "env").exists()), None)


def answer_of(response: httpx.Response) -> dict[str, Any]:
    """The JSON of an answer; raises :class:`TargetError` with the API's own sentence for refusals."""
    try:
        answer = response.json()
        if response.is_success:
            return dict(answer)
        raise TargetError(answer["error"]["message"])
    except (ValueError, KeyError, TypeError) as error:
        raise TargetError(
            f"{response.url} answered {response.status_code}, and not as this API does. MOORAGE_URL is the address that SDKs take as "
            "base_url; it ends with /v1."
        ) from error


def unreachable(error: httpx.TransportError) -> str:
    said = str(error) or type(error).__name__
    return f"{error.request.url} cannot be reached: {said}. 'moorage up' starts a local stack; MOORAGE_URL names another."


def refused(error: ClientError | BotoCoreError) -> str:
    """AWS's words, and the remedy if it is known."""
    match error:
        case NoRegionError():
            return "No AWS region is set: set AWS_REGION, or a region in your AWS profile."
        case NoCredentialsError():
            return "There are no AWS credentials: 'aws sso login', AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        case EndpointConnectionError():
            return f"{error}. 'moorage up' starts a local stack; AWS_ENDPOINT_URL and AWS_REGION name another."
        case ClientError() if error.response["Error"]["Code"] == "ResourceNotFoundException":
            return f"There is no such table in this account and region: {error}. MOORAGE_TABLE names it; 'make deployed' shows it."
        case ClientError() if error.response["Error"]["Code"] in _INVALID_CREDENTIALS:
            return f"AWS does not accept these credentials: {error}. 'aws sts get-caller-identity' shows who you are."
        case ClientError():
            return f"AWS refused: {error}"
    return f"AWS cannot be asked: {error}"
