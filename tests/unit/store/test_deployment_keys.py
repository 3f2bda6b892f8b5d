"""Who is told which key, and when it is read."""

from collections.abc import Sequence
from typing import Any

import pytest
from moorage import limits
from moorage.settings import Settings, SettingsError
from moorage.store.deployment_keys import DeploymentKeys, sandbox_key
from moorage.store.sealed import Sealer

KEY, OTHER = "ab" * 32, "cd" * 32
SECRET = "arn:aws:secretsmanager:us-east-1:000000000000:secret:moorage-AbCdEf"


class Secrets:
    def __init__(self, text: str = KEY) -> None:
        self.text, self.asked = text, 0

    def read(self, arn: str) -> str:
        assert arn == SECRET
        self.asked += 1
        return self.text


def on_aws(secrets: Secrets, now: Sequence[float] = (0.0,), **told: Any) -> DeploymentKeys:
    return DeploymentKeys(Settings("t", "b", provisioner="fargate", **told), secrets.read, lambda: now[0])


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


def test_after_a_leak_the_newer_key_seals_and_the_older_one_opens() -> None:
    secrets = Secrets()
    leaked = Sealer(on_aws(secrets, content_key_secret=SECRET).content).seal("acme", "before")
    secrets.text = f"{OTHER} {KEY}"
    keys = on_aws(secrets, content_key_secret=SECRET)
    sealer = Sealer(keys.content, keys.opening_anew)
    sealed = sealer.seal("acme", "after")
    assert [sealer.open("acme", token) for token in (leaked, sealed)] == ["before", "after"]
    assert Sealer(lambda: bytes.fromhex(OTHER)).open("acme", sealed) == "after"
    assert sealer.open("other", leaked) is None
    assert keys.sandboxes() == sandbox_key(bytes.fromhex(OTHER))


def test_an_older_process_opens_what_a_newer_one_has_sealed() -> None:
    secrets, now = Secrets(), [0.0]
    keys = on_aws(secrets, now, content_key_secret=SECRET)
    sealer = Sealer(keys.content, keys.opening_anew)
    old = sealer.seal("acme", "old")
    secrets.text = f"{OTHER} {KEY}"
    newer = Sealer(lambda: bytes.fromhex(OTHER)).seal("acme", "new")
    now[0] = limits.SECRET_SECONDS_MIN
    assert [sealer.open("acme", token) for token in (old, newer)] == ["old", "new"]


def test_tokens_of_no_key_at_all_do_not_have_the_secret_read_each_time() -> None:
    secrets = Secrets()
    keys = on_aws(secrets, content_key_secret=SECRET)
    sealer = Sealer(keys.content, keys.opening_anew)
    assert [sealer.open("acme", f"mrg1.{number:08x}.AAAA") for number in range(5)] == [None] * 5
    assert secrets.asked == 1


@pytest.mark.parametrize("text", [f"{KEY} no-hex", f"{KEY} {KEY[:10]}", " "])
def test_each_key_of_several_is_checked(text: str) -> None:
    with pytest.raises(SettingsError, match="must be 32 bytes as hex"):
        on_aws(Secrets(text), content_key_secret=SECRET).content()
