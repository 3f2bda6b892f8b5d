"""Skills inside a sandbox: there for commands to read, and for nobody to change."""

import asyncio
import os
import stat
from pathlib import Path

import pytest
from moorage.errors import SandboxError, SandboxGone
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.sandbox.provisioner import Handle, SandboxSpec
from moorage.skills import bundle

from tests.unit.sandbox.conftest import until_up
from tests.unit.sandbox.support import TOKEN, exec_server, new_id, run
from tests.unit.skills.archives import MANIFEST, skill, zip_of

ARCHIVE = bundle.of_zip(zip_of(skill(scripts__hello=b"#!/bin/sh\necho hello from $0\n", data=b"rows\n"))).archive
FOLDER = "make-tables-0123456789abcdef"
MOUNTED = f"/home/oai/skills/{FOLDER}"

ATTEMPTS = (
    f"echo x >> {MOUNTED}/SKILL.md",
    f"touch {MOUNTED}/new",
    f"rm -f {MOUNTED}/SKILL.md",
    f"mv {MOUNTED} /tmp/elsewhere",
    f"chmod u+w {MOUNTED}/SKILL.md && echo x >> {MOUNTED}/SKILL.md",
    "mkdir /home/oai/skills/another",
)


async def test_a_sandbox_of_bubblewrap_shows_a_skill_that_comes_while_it_runs(provisioner: LauncherProvisioner) -> None:
    handle = await provisioner.start(SandboxSpec("acme", new_id(), TOKEN))
    async with ExecClient(handle) as client:
        assert (await run(client, "ls /home/oai/skills")).text == ""
        await asyncio.gather(*(provisioner.add_skill(handle, FOLDER, ARCHIVE) for _ in range(3)))
        assert (await run(client, f"cd /home/oai/skills && find * -type f | sort; cat {FOLDER}/SKILL.md")).text == (
            f"{FOLDER}/SKILL.md\n{FOLDER}/data.txt\n{FOLDER}/scripts/hello.txt\n{MANIFEST.decode()}"
        )
        assert (await run(client, f"{MOUNTED}/scripts/hello.txt")).text == f"hello from {MOUNTED}/scripts/hello.txt\n"
        for attempt in ATTEMPTS:
            assert (await run(client, attempt)).exit_code != 0, attempt
        assert (await run(client, f"cat {MOUNTED}/SKILL.md; ls /home/oai/skills")).text == f"{MANIFEST.decode()}{FOLDER}\n"
        assert (await client.list_files()).files == ()
    await provisioner.stop(handle.sandbox_id)
    with pytest.raises(SandboxError, match="not running"):
        await provisioner.add_skill(handle, FOLDER, ARCHIVE)


@pytest.mark.parametrize("folder", ["..", "a..b", "A", "-a", "a" * 200])
async def test_a_folder_of_another_name_is_refused(provisioner: LauncherProvisioner, folder: str) -> None:
    handle = await provisioner.start(SandboxSpec("acme", new_id(), TOKEN))
    with pytest.raises((SandboxError, ValueError)):
        await provisioner.add_skill(handle, folder, ARCHIVE)
    async with ExecClient(handle) as client:
        assert (await run(client, "ls -A /home/oai/skills")).text == ""
    await provisioner.stop(handle.sandbox_id)


@pytest.mark.skipif(os.geteuid() != 0, reason="the exec server runs as another user than the commands only as root")
async def test_an_exec_server_of_root_keeps_skills_from_its_commands(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    skills = tmp_path / "skills"
    skills.mkdir()
    with exec_server(tmp_path, uid=61_000, skills=str(skills)) as process:
        async with ExecClient(process.handle) as client:
            await until_up(client)
            await asyncio.gather(*(client.put_skill(FOLDER, ARCHIVE) for _ in range(3)))
            assert sorted(path.name for path in skills.iterdir()) == [FOLDER]
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (skills / FOLDER).rglob("*") if path.is_file()}
            assert modes == {"SKILL.md": 0o444, "data.txt": 0o444, "hello.txt": 0o555}
            for attempt in ATTEMPTS:
                assert (await run(client, attempt.replace("/home/oai/skills", str(skills)))).exit_code != 0, attempt
            assert (skills / FOLDER / "SKILL.md").read_bytes() == MANIFEST
            bad = zip_of({"a/../../x": b"1"})
            for folder, archive in (("..", ARCHIVE), ("a", b"no zip"), ("b", bad), ("c", zip_of({"x": b"1"}))):
                with pytest.raises(SandboxError):
                    await client.put_skill(folder, archive)
            assert sorted(path.name for path in skills.iterdir()) == [FOLDER]
            assert not (tmp_path / "x").exists()


async def test_a_server_that_runs_as_its_commands_does_not_take_skills(client: ExecClient) -> None:
    with pytest.raises(SandboxError, match="it runs as their user"):
        await client.put_skill(FOLDER, ARCHIVE)


async def test_a_torn_upload_leaves_nothing(provisioner: LauncherProvisioner) -> None:
    handle = await provisioner.start(SandboxSpec("acme", new_id(), TOKEN))
    for broken in (ARCHIVE[:-40], zip_of({"a/../../x": b"1"}), b""):
        with pytest.raises(SandboxError):
            await provisioner.add_skill(handle, FOLDER, broken)
    async with ExecClient(handle) as client:
        assert (await run(client, "ls -A /home/oai/skills")).text == ""
    await provisioner.stop(handle.sandbox_id)


async def test_a_sandbox_that_is_gone_says_so(provisioner: LauncherProvisioner) -> None:
    with pytest.raises(SandboxGone):
        async with ExecClient(Handle("unix:/nowhere", TOKEN, "sbx_none")) as client:
            await client.put_skill(FOLDER, ARCHIVE)
