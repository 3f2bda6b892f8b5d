"""A workspace that commands can only read, in real sandboxes of both launchers, and where the exec server is root."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from moorage.errors import SandboxError
from moorage.sandbox import docker, fargate, lambda_microvm
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.sandbox.provisioner import SandboxSpec

from tests.unit.sandbox.conftest import until_up
from tests.unit.sandbox.support import SYSTEM_PYTHON, TOKEN, collect_bytes, exec_server, new_id, pieces, run
from tests.unit.sandbox.test_escapes import call

NOTE = "/mnt/data/folder/note.txt"
_CLOSED = "Read-only file system"
TRIES = {
    "write": (f"echo x > {NOTE}", _CLOSED),
    "append": (f"echo x >> {NOTE}", _CLOSED),
    "delete": (f"rm -f {NOTE}", _CLOSED),
    "rename": (f"mv {NOTE} /mnt/data/other", _CLOSED),
    "change the mode": (f"chmod 777 {NOTE}", _CLOSED),
    "a new file": ("touch /workspace/new", _CLOSED),
    "a new folder": ("mkdir /mnt/data/new", _CLOSED),
    "a second name": (f"ln {NOTE} /home/user/note", "cross-device"),
    "through the root of a process": (f"echo x > /proc/self/root{NOTE}", _CLOSED),
    "through the working folder of a process": ("cd /mnt/data/folder && echo x > /proc/self/cwd/note.txt", _CLOSED),
    "through an open folder": ("exec 9< /mnt/data/folder; echo x > /proc/self/fd/9/note.txt", _CLOSED),
    "through an open file": (f"exec 8< {NOTE}; echo x > /proc/self/fd/8", _CLOSED),
    "through the exec server": (f"echo x > /proc/1/root{NOTE}", "Permission denied"),
    "its descriptors": ("ls /proc/1/fd", "Permission denied"),
    "an inherited descriptor": ("ls -l /proc/self/fd | grep -c data", "0"),
    "mount it writable": (call("libc.mount(None, b'/mnt/data', None, 4128, None)"), "Operation not permitted"),
    "mount it elsewhere": (call("libc.mount(b'/mnt/data', b'/tmp', None, 4096, None)"), "Operation not permitted"),
    "unmount it": (call("libc.umount2(b'/mnt/data', 2)"), "Operation not permitted"),
    "a nested user namespace": (call("libc.unshare(0x10020000)"), "Operation not permitted"),
    "the patch program": ("printf '*** Begin Patch\\n*** Add File: new.txt\\n+x\\n*** End Patch\\n' | apply_patch", _CLOSED),
}


@pytest.fixture
async def closed(either_socket: Path) -> AsyncIterator[ExecClient]:
    async with LauncherProvisioner(str(either_socket)) as provisioner:
        handle = await provisioner.start(SandboxSpec("acme", new_id(), TOKEN, is_read_only=True))
        async with ExecClient(handle) as client:
            await client.write_file(NOTE, pieces(b"as it was"))
            await client.write_file("/mnt/data/gone.txt", pieces(b"gone"))
            await client.delete_file("/mnt/data/gone.txt")
            yield client
        await provisioner.stop(handle.sandbox_id)


async def test_no_command_changes_what_it_can_only_read(closed: ExecClient) -> None:
    for attempt, (command, refusal) in TRIES.items():
        said = (await run(closed, command)).text
        assert refusal in said, (attempt, said)
    assert [file.path for file in (await closed.list_files()).files] == ["folder/note.txt"]
    assert await collect_bytes(closed, NOTE) == b"as it was"
    assert (await run(closed, f"cat {NOTE}; echo own > /tmp/a && echo own > ~/a && cat /tmp/a ~/a")).text == "as it wasown\nown\n"


async def test_files_are_taken_until_the_first_command_begins(closed: ExecClient) -> None:
    await run(closed, "true")
    for change in (closed.write_file("/mnt/data/late.txt", pieces(b"late")), closed.delete_file(NOTE)):
        with pytest.raises(SandboxError, match="The files below /mnt/data can only be read"):
            await change
    assert await collect_bytes(closed, NOTE) == b"as it was"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run commands as another user")
async def test_a_server_of_root_keeps_the_files_for_itself() -> None:
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        (Path(name) / "data").mkdir()
        os.chown(Path(name) / "data", 61_240, 61_240)
        with exec_server(Path(name), uid=61_240, read_only=True, python=SYSTEM_PYTHON) as server:
            async with ExecClient(server.handle) as client:
                await until_up(client)
                note = server.workspace / "folder" / "note.txt"
                await client.write_file(str(note), pieces(b"as it was"))
                tries = ("echo x > {0}", "rm -f {0}", "touch {1}/new", "chmod 777 {1}", "mv {1}/folder {1}/other")
                for each in tries:
                    said = (await run(client, each.format(note, server.workspace))).text
                    assert "Permission denied" in said or "not permitted" in said, (each, said)
                with pytest.raises(SandboxError, match="can only be read"):
                    await client.write_file(str(note), pieces(b"late"))
                assert (await run(client, f"cat {note}")).text == "as it was"


def test_a_server_that_cannot_protect_the_files_does_not_start(tmp_path: Path) -> None:
    with exec_server(tmp_path, read_only=True) as server:
        os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
        assert "nothing keeps commands from changing" in (tmp_path / "log").read_text()


def test_every_kind_of_sandbox_is_told_that_its_files_can_only_be_read() -> None:
    closed = SandboxSpec("acme", new_id(), TOKEN, is_read_only=True)
    told = [docker.server_config(closed, 1), fargate.server_config(closed, has_desk=False), lambda_microvm._server_config(closed, ())]
    assert [(config["read_only"], "workspace_fd" in config) for config in told] == [(True, False)] * 3
