"""Keys of other servers in AWS's stores, for the references in ``models.toml``."""

from collections.abc import Callable
from typing import Any

from moorage.errors import SettingsConflict
from moorage.net.aws import aws_client


class StoredKeys:
    def __init__(self, client: Callable[[str], Any] = aws_client) -> None:
        """``client`` makes a boto3 client by the name of a service."""
        self._client = client

    def value(self, reference: str) -> str:
        """The text of a parameter (``ssm:/path``) or of a secret (``secretsmanager:/name``, or its ARN). Raises botocore's ClientError
        for one that is not there or may not be read, and SettingsConflict for a secret that holds bytes."""
        kind, _, name = reference.partition(":")
        if kind == "ssm":
            parameter: str = self._client("ssm").get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"]
            return parameter
        text: str | None = self._client("secretsmanager").get_secret_value(SecretId=name).get("SecretString")
        if text is None:
            raise SettingsConflict(f"The secret {name} holds bytes, and a key is text: store it with --secret-string.")
        return text
