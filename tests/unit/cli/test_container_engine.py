"""What the command line says of a container engine: the doctor's line, and the building of the sandboxes' image."""

import io
import json
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from urllib.parse import parse_qs, urlsplit

import pytest
from moorage.cli.checks.computer import of_computer
from moorage.cli.checks.findings import Finding, Level
from moorage.cli.checks.machine import sandbox_finding


@dataclass
class EngineServer:
    """The part of Docker's API that the commands ask, on a socket."""

    socket: str
    images: tuple[str, ...] = ()
    says: tuple[dict[str, str], ...] = ()
    built: list[tuple[dict[str, list[str]], list[str]]] = field(default_factory=list)
    """Of each build the parameters, and the names in its context."""

    def answer(self, path: str) -> tuple[int, object]:
        match path.split("/")[1:]:
            case ["version"]:
                return 200, {"ApiVersion": "1.47", "MinAPIVersion": "1.24"}
            case ["v1.47", "info"]:
                return 200, {"Runtimes": {"runc": {}}}
            case ["v1.47", "images", image, "json"] if image in self.images:
                return 200, {}
            case _:
                return 404, {"message": "none"}


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EngineServer]:
    told = EngineServer(str(tmp_path / "docker.sock"))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = told.answer(self.path)
            self._send(status, json.dumps(body))

        def do_POST(self) -> None:
            context = io.BytesIO(self.rfile.read(int(self.headers["content-length"])))
            with tarfile.open(fileobj=context) as archive:
                told.built.append((parse_qs(urlsplit(self.path).query), archive.getnames()))
            self._send(200, "".join(f"{json.dumps(line)}\r\n" for line in told.says))

        def _send(self, status: int, text: str) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def address_string(self) -> str:
            return "a client"

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with _Server(told.socket, Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield told
        server.shutdown()
        thread.join()


CANNOT = "the container engine can start no sandboxes"
NO_IMAGE = "The container engine has no image 'moorage-sandbox': 'moorage sandbox-image build' makes it."


@pytest.mark.parametrize(
    ("images", "environment", "finding"),
    [
        (("moorage-sandbox",), {}, Finding(Level.OK, "the container engine at {} can start sandboxes")),
        ((), {}, Finding(Level.FAIL, CANNOT, NO_IMAGE)),
        (
            ("moorage-sandbox",),
            {"MOORAGE_DOCKER_RUNTIME": "kata"},
            Finding(Level.FAIL, CANNOT, "MOORAGE_DOCKER_RUNTIME is 'kata'. The engine has runc."),
        ),
        ((), {"MOORAGE_DOCKER_IMGE": "x"}, Finding(Level.FAIL, CANNOT, "MOORAGE_DOCKER_IMGE is no setting; image is.")),
        (
            (),
            {"DOCKER_HOST": "unix:///nowhere.sock"},
            Finding(Level.FAIL, CANNOT, "The container engine does not answer at /nowhere.sock; is it running?"),
        ),
        (
            (),
            {"DOCKER_HOST": "tcp://10.0.0.1:2375"},
            Finding(
                Level.FAIL,
                CANNOT,
                "DOCKER_HOST is 'tcp://10.0.0.1:2375': sandboxes share sockets with this machine, so the engine must be on it "
                "(unix://...). MOORAGE_DOCKER_SOCKET takes another one.",
            ),
        ),
    ],
    ids=["all is there", "no image", "no such runtime", "a setting that is none", "no engine", "an engine elsewhere"],
)
def test_the_doctor_looks_at_engine_image_and_runtime(
    images: tuple[str, ...], environment: dict[str, str], finding: Finding, engine: EngineServer
) -> None:
    engine.images = images
    found = sandbox_finding({"MOORAGE_PROVISIONER": "docker", "DOCKER_HOST": f"unix://{engine.socket}"} | environment)
    assert found == Finding(finding.level, finding.what.format(engine.socket), finding.advice)


def sandbox_image(engine: EngineServer, *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "moorage", "sandbox-image", "build", *words],
        env={"DOCKER_HOST": f"unix://{engine.socket}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_sandboxes_image_is_built_on_the_engine_from_what_moorage_carries(engine: EngineServer) -> None:
    engine.says = ({"stream": "Step 1/9 : FROM python\n"}, {"stream": "Successfully tagged mine:latest\n"})
    code, said, progress = sandbox_image(engine, "--tag", "mine", "--runtimes", "slim")
    assert (code, said) == (0, "Built mine. MOORAGE_PROVISIONER=docker moorage up starts sandboxes from it.\n")
    assert progress == "Step 1/9 : FROM python\nSuccessfully tagged mine:latest\n"
    ((parameters, names),) = engine.built
    assert (parameters["t"], json.loads(parameters["buildargs"][0])) == (["mine"], {"RUNTIMES": "slim"})
    assert {"Dockerfile", "server/__main__.py", "toolbox.txt"} <= set(names)


def test_the_image_of_browsers_is_another_one(engine: EngineServer) -> None:
    engine.says = ({"stream": "Successfully tagged moorage-desk:latest\n"},)
    code, said, _ = sandbox_image(engine, "--desk")
    assert (code, said) == (0, "Built moorage-desk. Sandboxes have a browser beside them after the next start.\n")
    ((parameters, names),) = engine.built
    assert (parameters["t"], parameters["dockerfile"]) == (["moorage-desk"], ["Dockerfile.desk"])
    assert {"Dockerfile.desk", "server/__main__.py", "packages/desk.txt"} <= set(names)


@pytest.mark.parametrize(
    ("images", "level", "what"),
    [
        (("moorage-desk",), Level.OK, "a hosted computer can run here: the container engine has the image 'moorage-desk'"),
        ((), Level.WARN, "this machine can have no hosted computer"),
    ],
    ids=["it is built", "it is not"],
)
def test_the_doctor_looks_for_the_image_of_browsers(images: tuple[str, ...], level: Level, what: str, engine: EngineServer) -> None:
    engine.images = images
    (found,) = of_computer({"MOORAGE_PROVISIONER": "docker", "DOCKER_HOST": f"unix://{engine.socket}"})
    assert isinstance(found, Finding)
    assert (found.level, found.what) == (level, what)


def test_an_image_that_cannot_be_built_says_why(engine: EngineServer) -> None:
    engine.says = ({"stream": "Step 1/9\n"}, {"error": "useradd: user 'proxy' already exists\n"})
    code, said, progress = sandbox_image(engine)
    assert (code, said) == (1, "")
    assert progress.splitlines()[-1] == "moorage: The image could not be built: useradd: user 'proxy' already exists"
