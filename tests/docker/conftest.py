"""A real engine, and a stack whose sandboxes are its containers."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.engine import ROOT, Dockerd, base, build, build_image, missing, started
from tests.stack import Stack

_NAMED = os.environ.get("TESTS_ENGINE", "")


@pytest.fixture(scope="session")
def dockerd() -> Iterator[Dockerd]:
    if _NAMED:
        pytest.skip("the engine of TESTS_ENGINE is not started and stopped by tests")
    if why := missing():
        pytest.skip(why)
    with started() as running:
        yield running


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> str:
    """The socket of an engine that has the image of sandboxes: the one of ``TESTS_ENGINE``, such as Podman's, or Debian's Docker."""
    socket = _NAMED or request.getfixturevalue("dockerd").socket
    said = asyncio.run(build_image(socket))
    assert said[-1].startswith("Successfully tagged moorage-sandbox")
    return str(socket)


@pytest.fixture(scope="session")
def image(dockerd: Dockerd) -> str:
    """The name of the image of all of moorage."""
    debian = base(dockerd.socket, "moorage-debian")
    build(dockerd.socket, "moorage", ROOT, {"BASE_IMAGE": debian}, "docker/Dockerfile")
    return "moorage"


@pytest.fixture(scope="module")
def stack(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    running = docker_stack(engine, Path(tmp_path_factory.mktemp("stack"))).start()
    yield running
    assert running.stop() == 0


def docker_stack(engine: str, folder: Path, **environment: str) -> Stack:
    return Stack(folder, {"MOORAGE_PROVISIONER": "docker", "DOCKER_HOST": f"unix://{engine}", **environment}, finds_programs=True)
