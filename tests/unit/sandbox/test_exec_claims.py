"""The claim on a sandbox that waits: who comes first gets it, once, and only with its own token from then on."""

import asyncio
import hashlib
from pathlib import Path

import pytest
from moorage.errors import SandboxError
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.provisioner import Handle

from tests.unit.sandbox.conftest import until_up
from tests.unit.sandbox.support import (
    TOKEN,
    collect,
    exec_server,
    run,
)

OTHER_TOKEN = "another-token-of-at-least-32-characters"
OTHER_SHA256 = hashlib.sha256(OTHER_TOKEN.encode()).hexdigest()


async def test_nothing_runs_in_a_sandbox_before_it_is_claimed(tmp_path: Path) -> None:
    with exec_server(tmp_path, unclaimed=True) as process:
        async with ExecClient(process.handle) as pooled:
            await until_up(pooled)
            with pytest.raises(SandboxError, match="must be claimed"):
                await run(pooled, "touch ran")
            with pytest.raises(SandboxError, match="must be claimed"):
                await collect(pooled.python("p", "1", timeout_ms=1_000, max_output_length=10))  # type: ignore[arg-type]
            with pytest.raises(SandboxError, match="must be claimed"):
                await pooled.list_files(str(process.workspace))
        assert list(process.workspace.iterdir()) == []


async def test_a_claimed_sandbox_serves_the_new_token_and_the_old_one_is_dead(tmp_path: Path) -> None:
    with exec_server(tmp_path, unclaimed=True, env={"KEPT": "1"}) as process:
        async with ExecClient(process.handle) as pooled, ExecClient(Handle(process.handle.endpoint, OTHER_TOKEN, "x")) as own:
            await until_up(pooled)
            with pytest.raises(SandboxError, match="token"):
                await own.health()
            await pooled.claim(OTHER_SHA256)
            assert (await run(own, "echo $KEPT")).stdout == "1\n"
            for refused in (pooled.health(), pooled.claim(OTHER_SHA256)):
                with pytest.raises(SandboxError, match="token"):
                    await refused
            with pytest.raises(SandboxError, match="belongs to a container"):
                await own.claim(hashlib.sha256(TOKEN.encode()).hexdigest())


async def test_of_many_claims_at_once_one_is_taken(tmp_path: Path) -> None:
    with exec_server(tmp_path, unclaimed=True) as process:
        async with ExecClient(process.handle) as pooled:
            await until_up(pooled)
            claims = [pooled.claim(hashlib.sha256(bytes([n])).hexdigest()) for n in range(8)]
            ended = await asyncio.gather(*claims, return_exceptions=True)
    assert ended.count(None) == 1
    assert all(isinstance(each, SandboxError) for each in ended if each is not None)


async def test_a_claim_without_sense_leaves_the_sandbox_unclaimed(tmp_path: Path) -> None:
    with exec_server(tmp_path, unclaimed=True) as process:
        async with ExecClient(process.handle) as pooled:
            await until_up(pooled)
            with pytest.raises(SandboxError, match="A claim takes"):
                await pooled.claim("short")
            await pooled.claim(OTHER_SHA256)


async def test_a_sandbox_that_was_started_for_its_container_cannot_be_claimed(client: ExecClient) -> None:
    with pytest.raises(SandboxError, match="belongs to a container"):
        await client.claim(OTHER_SHA256)
