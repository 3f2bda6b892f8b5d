"""A real engine, and a stack whose sandboxes are its containers."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.engine import ROOT, Dockerd, base, build, build_image, missing, started
from tests.stack import Stack


@pytest.fixture(scope="session")
def dockerd() -> Iterator[Dockerd]:
    if why := missing():
        pytest.skip(why)
    with started() as running:
        yield running


@pytest.fixture(scope="session")
def engine(dockerd: Dockerd) -> str:
    """The socket of an engine that has the image of sandboxes."""
    said = asyncio.run(build_image(dockerd.socket))
    assert said[-1].startswith("Successfully tagged moorage-sandbox")
    return dockerd.socket


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
