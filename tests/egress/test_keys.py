"""What wraps data keys, both ways: the key file of one machine, and KMS."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import boto3
import pytest
from moorage.egress.ca import ensure_open_ca, ensure_sealed_ca
from moorage.egress.keys import KeyFile, KeyLost, Keys, KeyService, KmsKeys, key_service
from moorage.egress.secrets import container_context
from moorage.egress.store import EgressStore
from moorage.errors import SettingsConflict

from tests.egress.fakes import SteppingTable
from tests.ministack import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, Ministack

CONTEXT, OTHERS = container_context("tenant-1", "cntr_1"), container_context("tenant-2", "cntr_1")


@pytest.fixture(scope="module")
def emulator() -> Iterator[Ministack]:
    server = Ministack.start()
    yield server
    server.stop()


def key_file(folder: Path, keys: Keys | None = None) -> KeyFile:
    path = folder / "keys.json"
    path.touch(mode=0o600)
    path.write_text((keys or Keys.new({})).text())
    return KeyFile(path)


@pytest.fixture(params=["file", "kms"])
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeyService]:
    if request.param == "file":
        key_file(tmp_path)
        with ThreadPoolExecutor(1) as executor:
            yield key_service(f"file:{tmp_path}/keys.json", executor, partial(boto3.client, "kms"))
        return
    options = {"region_name": REGION, "aws_access_key_id": ACCESS_KEY_ID, "aws_secret_access_key": SECRET_ACCESS_KEY}
    with ThreadPoolExecutor(1) as executor:
        endpoint = request.getfixturevalue("emulator").endpoint
        made = key_service("alias/secrets", executor, partial(boto3.client, "kms", endpoint_url=endpoint, **options))
        assert isinstance(made, KmsKeys)
        made._client.create_alias(AliasName="alias/secrets", TargetKeyId=made._client.create_key()["KeyMetadata"]["KeyId"])
        yield made
        made._client.delete_alias(AliasName="alias/secrets")
        made._client.close()


async def test_a_key_comes_back_for_what_it_was_made_for(keys: KeyService) -> None:
    made = [await keys.generate(CONTEXT) for _ in range(3)]
    assert [await keys.unwrap(key.wrapped, dict(reversed(CONTEXT.items()))) for key in made] == [key.plaintext for key in made]
    assert {len(key.plaintext) for key in made} == {32}
    assert len({key.plaintext for key in made}) == len({key.wrapped for key in made}) == 3
    assert not any(key.plaintext in key.wrapped for key in made)


async def test_a_key_opens_for_nothing_else(keys: KeyService) -> None:
    made = await keys.generate(CONTEXT)
    for context in (OTHERS, {}, CONTEXT | {"more": "x"}):
        with pytest.raises(KeyLost):
            await keys.unwrap(made.wrapped, context)


async def test_a_service_knows_its_own_key(keys: KeyService) -> None:
    assert (keys.has(keys.key_id), keys.has("another")) == (True, False)


# --- The file -----------------------------------------------------------------------------------------------------------------


async def test_what_was_tampered_with_does_not_open(tmp_path: Path) -> None:
    keys = key_file(tmp_path)
    wrapped = (await keys.generate(CONTEXT)).wrapped
    changed = [wrapped[:at] + bytes([wrapped[at] ^ 1]) + wrapped[at + 1 :] for at in range(len(wrapped))]
    for each in (*changed, wrapped[:-1], wrapped[:40], b"", wrapped + b"\0"):
        with pytest.raises(KeyLost):
            await keys.unwrap(each, CONTEXT)


async def test_the_file_of_another_stack_opens_nothing(tmp_path: Path) -> None:
    wrapped = (await key_file(tmp_path).generate(CONTEXT)).wrapped
    with pytest.raises(KeyLost, match=r"keys.json does not hold the key that wrapped this. A backup of the time"):
        await key_file(tmp_path).unwrap(wrapped, CONTEXT)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
async def test_a_file_that_others_could_read_is_not_used(tmp_path: Path, mode: int) -> None:
    keys = key_file(tmp_path)
    wrapped = (await keys.generate(CONTEXT)).wrapped
    (tmp_path / "keys.json").chmod(mode)
    said = f"Others could read the key of the secrets: 'chmod 600 {tmp_path}/keys.json', and change the secrets."
    for use in (keys.generate(CONTEXT), keys.unwrap(wrapped, CONTEXT)):
        with pytest.raises(SettingsConflict) as caught:
            await use
        assert str(caught.value) == said


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"current": "x", "keys": {}, "emulated": {}}', '{"current": "x", "keys": {"x": "c2hvcnQ="}, "emulated": {}}'],
)
async def test_a_torn_file_says_what_helps(tmp_path: Path, text: str) -> None:
    keys = key_file(tmp_path)
    (tmp_path / "keys.json").write_text(text)
    with pytest.raises(SettingsConflict) as caught:
        await keys.generate(CONTEXT)
    assert str(caught.value) == f"{tmp_path}/keys.json holds no key of secrets any more. Put it back from a backup."


async def test_a_file_that_is_gone_says_what_helps(tmp_path: Path) -> None:
    with pytest.raises(SettingsConflict, match=r"The key of the secrets is missing: .*/keys.json. Put it back from a backup"):
        await KeyFile(tmp_path / "keys.json").generate(CONTEXT)


async def test_keys_are_in_no_representation() -> None:
    secret = os.urandom(32)
    assert repr(secret) not in repr(Keys("x", {"x": secret}, {"y": secret}))


async def test_the_certificate_authority_outlives_its_keys_change(tmp_path: Path) -> None:
    store, first = EgressStore(SteppingTable()), Keys.new({})
    made = await ensure_sealed_ca(store, key_file(tmp_path, first))
    second = Keys.new({})
    both = key_file(tmp_path, Keys(second.current, {**first.keys, **second.keys}))
    assert (await ensure_open_ca(store, both)).certificate_pem == made.certificate_pem
    assert (await ensure_open_ca(store, key_file(tmp_path, second))).certificate_pem != made.certificate_pem
