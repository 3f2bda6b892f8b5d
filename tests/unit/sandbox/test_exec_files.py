"""The exec server's files: written, listed and read below the workspace, and nowhere else."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from moorage.errors import SandboxError, SandboxFileMissing
from moorage.sandbox.exec_client import ExecClient, ExecEnded, ExecEvent, FileListing, SandboxFile

from tests.unit.sandbox.conftest import until_up
from tests.unit.sandbox.support import (
    ServerProcess,
    collect_bytes,
    exec_server,
    new_id,
    pieces,
    run,
)


class TestFiles:
    async def test_files_are_written_listed_read_and_deleted(self, client: ExecClient, server: ServerProcess) -> None:
        await client.write_file("deep/er/data.bin", pieces(b"\x00\xff" * 100_000, b"end"))
        await run(client, "cd deep && ln -s /etc/passwd link && mkfifo pipe && ln -s er er-link")
        listing = await client.list_files(str(server.workspace))
        found = {file.path: file for file in listing.files if file.path.startswith("deep/")}
        assert {path: (file.kind, file.size) for path, file in found.items() if file.kind == "file"} == {
            "deep/er/data.bin": ("file", 200_003)
        }
        assert {path: file.kind for path, file in found.items() if file.kind != "file"} == {
            "deep/link": "symlink",
            "deep/pipe": "other",
            "deep/er-link": "symlink",
        }
        assert listing.is_complete
        assert isinstance(found["deep/er/data.bin"], SandboxFile)
        assert b"".join([piece async for piece in client.read_file("deep/er/data.bin")]) == b"\x00\xff" * 100_000 + b"end"
        await client.delete_file("deep/er/data.bin")
        await client.delete_file("deep/er/data.bin")
        with pytest.raises(SandboxFileMissing):
            await collect_bytes(client, "deep/er/data.bin")

    async def test_a_listing_says_whether_a_process_lives_that_may_change_it(self, client: ExecClient, server: ServerProcess) -> None:
        async def has_processes() -> bool:
            return (await client.list_files(str(server.workspace))).has_processes

        await run(client, "true")
        assert not await has_processes()
        left = (await run(client, "sleep 1000 > /dev/null 2>&1 & echo $!")).stdout
        assert await has_processes()
        await run(client, f"kill {int(left)}")
        async with asyncio.timeout(20):
            while await has_processes():
                await asyncio.sleep(0.01)

    async def test_the_files_behind_a_command_come_with_its_end(self, client: ExecClient, server: ServerProcess) -> None:
        async def with_files(exec_id: str, command: str, **options: Any) -> list[ExecEvent]:
            events = client.exec(exec_id, command, timeout_ms=20_000, max_output_length=100, **options)
            return [event async for event in events if isinstance(event, ExecEnded | FileListing)]

        exec_id = new_id()
        ended, listed = await with_files(exec_id, "mkdir f; echo 1 > f/a; ln -s a f/b", files_max=100)
        assert isinstance(ended, ExecEnded)
        assert listed == await client.list_files(str(server.workspace))
        assert await with_files(exec_id, "mkdir f; echo 1 > f/a; ln -s a f/b", files_max=100, after=ended.n) == [listed]
        assert await with_files(exec_id, "mkdir f; echo 1 > f/a; ln -s a f/b") == [ended]
        _, cut = await with_files(new_id(), "sleep 1000 > /dev/null 2>&1 &", files_max=1)
        assert isinstance(cut, FileListing)
        assert (len(cut.files), cut.is_complete, cut.has_processes) == (1, False, True)
        with pytest.raises(SandboxError, match="'files' is out of range"):
            await with_files(new_id(), "true", files_max=100_001)

    async def test_many_small_files_are_read_by_one_request(self, client: ExecClient, server: ServerProcess) -> None:
        await run(
            client,
            "mkdir m; cd m; for n in $(seq 300); do echo $n > $n; done; : > empty; head -c 262144 /dev/zero > full; "
            "head -c 262145 /dev/zero > over; ln -s 1 link; mkfifo pipe; mkdir directory",
        )
        small = [f"m/{number}" for number in range(1, 301)]
        asked = [*small, "m/empty", "m/full", f"{server.workspace}/m/1"]
        alone = ["m/over", "m/link", "m/pipe", "m/directory", "m/none", "../log", "/etc/passwd", ""]
        answered = [content async for content in client.read_files([*alone, *asked, *alone])]
        expected = [*(f"{number}\n".encode() for number in range(1, 301)), b"", bytes(262_144), b"1\n"]
        assert answered == [*[None] * len(alone), *expected, *[None] * len(alone)]
        assert [content async for content in client.read_files([])] == []

    async def test_a_reader_of_many_files_may_leave_before_their_end(self, client: ExecClient) -> None:
        await run(client, "mkdir l; cd l; for n in $(seq 40); do head -c 200000 /dev/zero > $n; done")
        contents = client.read_files([f"l/{number}" for number in range(1, 41)])
        assert await anext(contents) == bytes(200_000)
        await contents.aclose()
        assert (await run(client, "echo alive")).stdout == "alive\n"

    async def test_what_is_not_a_list_of_paths_is_refused(self, client: ExecClient) -> None:
        with pytest.raises(SandboxError, match="list of texts"):
            await anext(client.read_files([1]))  # type: ignore[list-item]

    async def test_variables_are_those_of_all_that_begins_later(self, tmp_path: Path) -> None:
        with exec_server(tmp_path) as process:
            async with ExecClient(process.handle) as client:
                await until_up(client)
                assert (await run(client, "echo ${GREETING-none}")).stdout == "none\n"
                await client.set_variables({"GREETING": "good morning", "PAGER": "less"})
                assert (await run(client, "echo $GREETING $PAGER $USER")).stdout == "good morning less user\n"
                with pytest.raises(SandboxError, match="texts by name"):
                    await client.set_variables({"A=B": "c"})

    async def test_the_workspace_has_another_name(self, client: ExecClient) -> None:
        await client.write_file("/workspace/linked/a.txt", pieces(b"a"))
        assert (await run(client, "cat linked/a.txt")).stdout == "a"
        assert await collect_bytes(client, "/workspace/linked/a.txt") == b"a"

    @pytest.mark.parametrize(
        "path", ["../log", "/etc/passwd", "/workspace", "/workspace/../etc/passwd", "/workspaces/a", "a/../../log", "", "/", "."]
    )
    async def test_a_path_outside_is_refused(self, client: ExecClient, path: str) -> None:
        with pytest.raises(SandboxError, match="not a path below"):
            await collect_bytes(client, path)
        with pytest.raises(SandboxError, match="not a path below"):
            await client.write_file(path, pieces(b"x"))

    async def test_no_link_leads_outside(self, client: ExecClient, server: ServerProcess) -> None:
        await run(client, "mkdir -p links; cd links; ln -sfn /etc etc; ln -sf /etc/passwd passwd; mkfifo -m 666 fifo")
        for path in ("links/etc/passwd", "links/passwd", "links/fifo", "links", "links/none"):
            with pytest.raises(SandboxFileMissing):
                await collect_bytes(client, path)
        with pytest.raises(SandboxError, match="cannot be written"):
            await client.write_file("links/etc/new", pieces(b"x"))
        await client.write_file("links/passwd", pieces(b"replaced"))
        assert (await run(client, "cat links/passwd; test -L links/passwd || echo file")).stdout == "replacedfile\n"
        assert "root:" in Path("/etc/passwd").read_text()

    async def test_an_upload_that_breaks_off_leaves_the_old_file(self, client: ExecClient, server: ServerProcess) -> None:
        await client.write_file("kept.txt", pieces(b"old"))

        async def broken() -> object:
            yield b"new"
            raise OSError("torn")

        with pytest.raises(OSError, match="torn"):
            await client.write_file("kept.txt", broken())  # type: ignore[arg-type]
        assert await collect_bytes(client, "kept.txt") == b"old"
        assert [f.path for f in (await client.list_files(str(server.workspace))).files if "upload" in f.path] == []

    async def test_a_name_that_is_not_utf_8_is_listed_as_something_else(self, client: ExecClient, server: ServerProcess) -> None:
        await run(client, r"mkdir -p odd; touch odd/$(printf '\xff') 'odd/new'$'\n''line'")
        files = {f.path: f.kind for f in (await client.list_files(str(server.workspace))).files if f.path.startswith("odd/")}
        assert files == {"odd/\ufffd": "not_utf8", "odd/new\nline": "file"}

    async def test_a_tree_that_is_too_deep_makes_the_listing_incomplete(self, tmp_path: Path) -> None:
        with exec_server(tmp_path) as process:
            async with ExecClient(process.handle) as client:
                await until_up(client)
                await run(client, "for i in $(seq 300); do mkdir d && cd d && touch f; done")
                listing = await client.list_files(str(process.workspace))
                assert (len(listing.files), listing.is_complete) == (99, False)

    async def test_a_closed_directory_makes_the_listing_incomplete(self, sandbox: ExecClient) -> None:
        """In a sandbox: nothing is closed to root."""
        await run(sandbox, "mkdir closed; touch seen closed/unseen; chmod 000 closed")
        listing = await sandbox.list_files()
        assert ([file.path for file in listing.files], listing.is_complete) == (["seen"], False)
