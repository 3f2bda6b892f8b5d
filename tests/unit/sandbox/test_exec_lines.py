"""Answers of exec servers, a line of JSON each, however the network cuts them."""

import json

import httpx
from moorage.sandbox.exec_client import ExecClient, FileListing, SandboxFile
from moorage.sandbox.provisioner import Handle

from tests.unit.model.encodings import Pieces

FILES = tuple(SandboxFile(f"grüße/{'long' * 20}{number}.txt", number, 7, number, "file") for number in range(3))


def _body() -> bytes:
    entries = [
        {"path": file.path, "size": file.size, "mtime_ns": file.mtime_ns, "inode": file.inode, "kind": file.kind} for file in FILES
    ]
    return "\n".join(json.dumps(entry, ensure_ascii=False) for entry in (*entries, {"type": "end", "complete": True})).encode()


async def _listed(*pieces: bytes) -> FileListing:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=Pieces(*pieces)))
    async with ExecClient(Handle("http://127.0.0.1:1", "token", "sandbox"), transport=transport) as client:
        return await client.list_files()


async def test_lines_are_whole_wherever_the_network_cuts_them() -> None:
    body = _body()
    for end in (body, body + b"\n"):
        for cut in range(len(end)):
            assert await _listed(end[:cut], end[cut:]) == FileListing(FILES, is_complete=True)


async def test_lines_are_whole_if_each_byte_comes_alone() -> None:
    body = _body()
    assert await _listed(*(body[at : at + 1] for at in range(len(body)))) == FileListing(FILES, is_complete=True)
