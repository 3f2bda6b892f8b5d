"""Keys of models where AWS keeps them, at an emulator."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moorage.errors import SettingsConflict
from moorage.store.stored_keys import StoredKeys

from tests.ministack import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, Ministack


@pytest.fixture(scope="module")
def emulator() -> Iterator[Ministack]:
    server = Ministack.start()
    yield server
    server.stop()


@pytest.fixture
def client(emulator: Ministack) -> Any:
    session = boto3.Session(aws_access_key_id=ACCESS_KEY_ID, aws_secret_access_key=SECRET_ACCESS_KEY, region_name=REGION)
    return lambda service: session.client(service, endpoint_url=emulator.endpoint)


def test_a_reference_names_a_parameter_a_secret_or_a_secrets_arn(client: Any) -> None:
    client("ssm").put_parameter(Name="/moorage/KEY", Value="of a parameter", Type="SecureString")
    arn = client("secretsmanager").create_secret(Name="/moorage/KEY", SecretString="of a secret")["ARN"]
    keys = StoredKeys(client)
    references = ("ssm:/moorage/KEY", "secretsmanager:/moorage/KEY", f"secretsmanager:{arn}")
    assert [keys.value(each) for each in references] == ["of a parameter", "of a secret", "of a secret"]


def test_a_secret_that_was_rotated_is_read_as_it_is_now(client: Any) -> None:
    keys = StoredKeys(client)
    client("secretsmanager").create_secret(Name="/moorage/ROTATED", SecretString="old")
    before = keys.value("secretsmanager:/moorage/ROTATED")
    client("secretsmanager").put_secret_value(SecretId="/moorage/ROTATED", SecretString="new")
    assert (before, keys.value("secretsmanager:/moorage/ROTATED")) == ("old", "new")


def test_a_secret_that_is_not_there_is_botocores_error(client: Any) -> None:
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        StoredKeys(client).value("secretsmanager:/moorage/NOPE")


def test_a_secret_of_bytes_is_refused_with_one_sentence(client: Any) -> None:
    client("secretsmanager").create_secret(Name="/moorage/BYTES", SecretBinary=b"k3y")
    with pytest.raises(SettingsConflict, match=r"^The secret /moorage/BYTES holds bytes, and a key is text: [^\n]+$"):
        StoredKeys(client).value("secretsmanager:/moorage/BYTES")
