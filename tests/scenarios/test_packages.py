"""Packages of an environment come from the operator's mirrors, by the real proxy and the real pip and npm, before its commands."""

import hashlib
import json
import shutil
import tarfile
import threading
import zipfile
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.stack import Stack, outputs, say, script, shell

MIRROR = "packages.lab.test"
WHEEL = "parcels-1.0-py3-none-any.whl"


def wheel() -> bytes:
    """A package of one module and one program."""
    about = "parcels-1.0.dist-info"
    files = {
        "parcels.py": b"def weigh() -> None:\n    print('2 kg')\n",
        f"{about}/METADATA": b"Metadata-Version: 2.1\nName: parcels\nVersion: 1.0\n",
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": b"[console_scripts]\nparcels = parcels:weigh\n",
    }

    def line(name: str, content: bytes) -> str:
        digest = urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        return f"{name},sha256={digest},{len(content)}"

    record = "\n".join([*(line(*file) for file in files.items()), f"{about}/RECORD,,", ""])
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in {**files, f"{about}/RECORD": record.encode()}.items():
            archive.writestr(name, content)
    return packed.getvalue()


SCALES = {
    "package.json": json.dumps({"name": "scales", "version": "1.2.0", "bin": {"scales": "scales.js"}, "main": "scales.js"}),
    "scales.js": "#!/usr/bin/env node\nexports.weigh = () => '3 kg';\nif (require.main === module) console.log(exports.weigh());\n",
}


def packed_scales() -> bytes:
    """A package of npm: one module, which is a program too."""
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in SCALES.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size, member.mode = len(text), 0o755
            archive.addfile(member, BytesIO(text.encode()))
    return packed.getvalue()


def npm_pages(url: str) -> dict[str, bytes]:
    """Of a registry of npm at this address."""
    tarball = packed_scales()
    integrity = f"sha512-{b64encode(hashlib.sha512(tarball).digest()).decode()}"
    dist = {"tarball": f"{url}scales/-/scales-1.2.0.tgz", "integrity": integrity}
    version = {**json.loads(SCALES["package.json"]), "dist": dist}
    about = {"name": "scales", "dist-tags": {"latest": "1.2.0"}, "versions": {"1.2.0": version}}
    return {"/npm/scales": json.dumps(about).encode(), "/npm/scales/-/scales-1.2.0.tgz": tarball}


@dataclass
class Index:
    """Of one wheel and one package of npm."""

    port: int
    asked: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    content = wheel()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            there.asked.append(self.path)
            simple = {"/simple/parcels/": f'<a href="/files/{WHEEL}">{WHEEL}</a>'.encode(), f"/files/{WHEEL}": content}
            page = (simple | npm_pages(f"http://{MIRROR}:{there.port}/npm/")).get(self.path)
            self.send_response(404 if page is None else 200)
            kinds = {"/simple": "text/html", "/npm/scales": "application/json"}
            self.send_header("content-type", kinds.get(self.path.removesuffix("/parcels/"), "application/octet-stream"))
            self.send_header("content-length", str(len(page or b"")))
            self.end_headers()
            self.wfile.write(page or b"")

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        there = Index(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield there
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def client(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """Of a stack with a mirror, which no container may reach by itself."""
    directory = tmp_path_factory.mktemp("packages")
    (directory / "hosts").write_text(f"127.0.0.1 {MIRROR}\n")
    environment = {
        "MOORAGE_ALLOWED_EGRESS_DOMAINS": "example.com",
        "MOORAGE_PYTHON_MIRROR": f"http://{MIRROR}:{index.port}/simple/",
        "MOORAGE_EGRESS_HOSTS": str(directory / "hosts"),
        "MOORAGE_EGRESS_ALLOWED_NETWORKS": "127.0.0.0/8",
        "MOORAGE_EGRESS_PORTS": str(index.port),
    }
    running = Stack(directory / "stack", environment).start()
    yield running.client()
    assert running.stop() == 0


@pytest.fixture(scope="module")
def npm_client(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """Of a stack with a mirror for npm too."""
    directory = tmp_path_factory.mktemp("npm")
    (directory / "hosts").write_text(f"127.0.0.1 {MIRROR}\n")
    environment = {
        "MOORAGE_ALLOWED_EGRESS_DOMAINS": "example.com",
        "MOORAGE_PYTHON_MIRROR": f"http://{MIRROR}:{index.port}/simple/",
        "MOORAGE_NPM_MIRROR": f"http://{MIRROR}:{index.port}/npm/",
        "MOORAGE_EGRESS_HOSTS": str(directory / "hosts"),
        "MOORAGE_EGRESS_ALLOWED_NETWORKS": "127.0.0.0/8",
        "MOORAGE_EGRESS_PORTS": str(index.port),
    }
    running = Stack(directory / "stack", environment).start()
    yield running.client()
    assert running.stop() == 0


def ran(client: OpenAI, environment_id: str, *commands: str) -> list[tuple[str, str, Any]]:
    tools: Any = [{"type": "shell", "environment": {"type": "container_reference", "container_id": environment_id}}]
    response = client.responses.create(model="demo", input=script(shell(*commands), say("x")), tools=tools)
    return outputs(response.output)[0]


@pytest.mark.parametrize("network", [{"access": "disabled"}, {"access": "restricted", "allowed_domains": ["example.com"]}], ids=str)
def test_packages_are_there_for_setup_commands_and_all_others(client: OpenAI, index: Index, network: Any) -> None:
    index.asked.clear()
    asks = f"curl -sS -o /dev/null -w '%{{http_code}}' http://{MIRROR}:{index.port}/simple/parcels/"
    hosted: Any = {
        "type": "openai_hosted",
        "network": network,
        "packages": {"python": ["parcels==1.0"]},
        "env": {"NODE_PATH": "/workspace/lib"},
        "setup_commands": [{"command": "parcels > weight.txt"}, {"command": f"{asks} > setup.txt"}],
    }
    environment = client.beta.agents.environments.create(environment=hosted)
    found = ran(
        client,
        environment.id,
        "cat weight.txt",
        "python3 -c 'import parcels; parcels.weigh()'",
        'echo "$NODE_PATH"',
        "cat setup.txt",
        asks,
    )
    modules = "/home/user/.packages/npm/lib/node_modules:/workspace/lib"
    assert [stdout.splitlines()[-1] for stdout, _, _ in found] == ["2 kg", "2 kg", modules, "403", "403"]
    assert index.asked == ["/simple/parcels/", f"/files/{WHEEL}"]


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_packages_of_npm_and_python_are_there_side_by_side(npm_client: OpenAI, index: Index) -> None:
    index.asked.clear()
    hosted: Any = {
        "type": "openai_hosted",
        "packages": {"npm": ["scales@^1.0.0"], "python": ["parcels"]},
        "setup_commands": [{"command": "scales > weight.txt"}],
    }
    environment = npm_client.beta.agents.environments.create(environment=hosted)
    found = ran(npm_client, environment.id, "cat weight.txt", "node -p 'require(\"scales\").weigh()'", "parcels")
    assert [(stdout.splitlines()[-1:], stderr) for stdout, stderr, _ in found] == [(["3 kg"], ""), (["3 kg"], ""), (["2 kg"], "")]
    assert sorted(index.asked) == [f"/files/{WHEEL}", "/npm/scales", "/npm/scales/-/scales-1.2.0.tgz", "/simple/parcels/"]


def test_a_session_shows_its_packages_and_its_copy_has_them(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    hosted: Any = {"type": "openai_hosted", "packages": {"python": ["parcels"]}}
    session = sessions.create(agent={"model": "demo"}, environment=hosted)
    shown: Any = session.environment
    assert shown.packages.to_dict() == {"npm": [], "python": ["parcels"], "system": []}
    with sessions.stream(session.id, input=script(shell("echo kept > a.txt"), say("Done."))) as stream:
        stream.get_final_result()
    fork: Any = client.post(f"/agents/sessions/{session.id}/fork", body={}, cast_to=object)
    with sessions.stream(fork["id"], input=script(shell("cat a.txt; parcels"), say("{{output}}"))) as stream:
        assert "kept\n2 kg" in stream.get_final_result().output_text


def test_packages_that_the_mirror_lacks_fail_the_environment_with_the_reason(client: OpenAI) -> None:
    hosted: Any = {"type": "openai_hosted", "packages": {"python": ["unheard-of"]}}
    environment = client.beta.agents.environments.create(environment=hosted)
    ((_, stderr, _),) = ran(client, environment.id, "true")
    assert "No matching distribution found for unheard-of" in stderr
    told: Any = client.beta.agents.environments.retrieve(environment.id)
    assert told.status == "failed"
    assert "The installation of 'packages.python' failed with exit code 1" in told.error["message"]


def test_packages_without_a_mirror_are_refused_by_the_settings_name(client: OpenAI) -> None:
    hosted: Any = {"type": "openai_hosted", "packages": {"npm": ["left-pad"]}}
    with pytest.raises(openai.BadRequestError, match="MOORAGE_NPM_MIRROR") as refused:
        client.beta.agents.environments.create(environment=hosted)
    assert (refused.value.code, refused.value.param) == ("packages_unavailable", "environment.packages.npm")
