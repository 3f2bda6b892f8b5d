"""Who is told which key, and when it is read."""

from typing import Any

import pytest
from moorage.settings import Settings, SettingsError
from moorage.store.deployment_keys import DeploymentKeys, sandbox_key
from moorage.store.sealed import Sealer

KEY = "ab" * 32
SECRET = "arn:aws:secretsmanager:us-east-1:000000000000:secret:moorage-AbCdEf"


class Secrets:
    def __init__(self, text: str = KEY) -> None:
        self.text, self.asked = text, 0

    def read(self, arn: str) -> str:
        assert arn == SECRET
        self.asked += 1
        return self.text


def on_aws(secrets: Secrets, **told: Any) -> DeploymentKeys:
    return DeploymentKeys(Settings("t", "b", provisioner="fargate", **told), secrets.read)


def test_the_key_is_read_when_something_is_sealed_and_once() -> None:
    secrets = Secrets()
    keys = on_aws(secrets, content_key_secret=SECRET)
    sealer = Sealer(keys.content)
    assert secrets.asked == 0
    assert [sealer.open("acme", sealer.seal("acme", text)) for text in ("a", "b")] == ["a", "b"]
    assert secrets.asked == 1


def test_a_read_that_fails_is_tried_again() -> None:
    secrets = Secrets("")
    keys = on_aws(secrets, content_key_secret=SECRET)
    with pytest.raises(SettingsError, match="MOORAGE_CONTENT_KEY_SECRET names must be 32 bytes"):
        keys.content()
    secrets.text = KEY
    assert keys.content() == bytes.fromhex(KEY)


def test_tokens_come_from_a_key_of_their_own_that_those_inside_are_told() -> None:
    told = sandbox_key(bytes.fromhex(KEY))
    inside = on_aws(Secrets(), sandbox_key=told.hex())
    assert inside.sandboxes() == on_aws(Secrets(), content_key_secret=SECRET).sandboxes() == told
    assert told.hex() != KEY
    with pytest.raises(SettingsError, match="neither seal nor open"):
        inside.content()


def test_who_is_told_the_sandboxes_key_reads_no_secret_for_it() -> None:
    secrets = Secrets()
    on_aws(secrets, content_key_secret=SECRET, sandbox_key="11" * 32).sandboxes()
    assert secrets.asked == 0


def test_who_is_told_nothing_can_be_built_on_aws_and_derives_nothing() -> None:
    keys = on_aws(Secrets())
    for ask in (keys.content, keys.sandboxes):
        with pytest.raises(SettingsError, match="MOORAGE_CONTENT_KEY is not set"):
            ask()


@pytest.mark.parametrize("key", [None, "", "no hex", "ab" * 31])
def test_on_one_machine_a_start_without_a_key_is_refused(key: str | None) -> None:
    with pytest.raises(SettingsError, match="MOORAGE_CONTENT_KEY"):
        DeploymentKeys(Settings("t", "b", content_key=key), Secrets().read)


@pytest.mark.parametrize("key", ["no hex", "ab" * 33])
def test_a_key_of_sandboxes_that_is_none_is_named(key: str) -> None:
    with pytest.raises(SettingsError, match="MOORAGE_SANDBOX_KEY must be 32 bytes"):
        on_aws(Secrets(), sandbox_key=key).sandboxes()
