"""``make afternoon`` on an emulator: the steps that an emulator can do. What is proved here is the program; what it proves on AWS, no
emulator can."""

import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import pytest

from localstack.deploy import Deployer
from tests.afternoon.__main__ import afternoon
from tests.afternoon.ground import AWS_ONLY, Settings
from tests.afternoon.record import Record
from tests.afternoon.steps import STEPS, Afternoon
from tests.deploy.conftest import REGION, running_emulator, synthesise
from tests.twin.serve import serving

pytestmark = pytest.mark.timeout(3600)

SHORT = ("deploy", "edge", "sandbox", "large file", "killed task", "update under load", "zones", "destroy")
"""All that an emulator can do, but for the restore: ``restore.py`` has it."""


class Emulated:
    """A :class:`tests.afternoon.ground.Ground`."""

    name, region, features = "moorage", REGION, frozenset[str]()
    file_bytes, command_seconds = 9_000_000, 2
    responses_at_once = 2  # each wakes functions of its own, which takes four seconds of a core for each of them

    def __init__(self, deployer: Deployer, folder: Path) -> None:
        self._deployer, self._folder = deployer, folder
        images: Settings = {"bundle_for": "host", "sandbox_image": "local/sandbox", "memory_tiers": ["1g"]}
        self.settings: Settings = {**images, "name": self.name, "retain": False}
        self.another_image: Settings = {"sandbox_image": "local/another"}
        self._assemblies: dict[str, Path] = {}
        self._serving = ExitStack()
        self._origin = ""

    def look_at_account(self) -> str:
        raise AssertionError("there is no account")

    def deploy(self, settings: Settings) -> dict[str, str]:
        assembly = self._assembly(settings)
        outputs = self._deployer.deploy(assembly)[self.name]
        self.close()
        self._origin = self._serving.enter_context(serving(self._deployer, assembly, has_roles=False))
        return outputs

    def _assembly(self, settings: Settings) -> Path:
        text = json.dumps(settings, sort_keys=True)
        if text not in self._assemblies:
            self._assemblies[text] = synthesise(Path(tempfile.mkdtemp(dir=self._folder)), dict(settings))
        return self._assemblies[text]

    def url(self, outputs: Mapping[str, str]) -> str:
        return f"{self._origin}/api/v1"

    def destroy(self) -> None:
        self.close()
        self._deployer.destroy(self._assembly(self.settings))

    def client(self, service: str) -> Any:
        return self._deployer.client(service)

    def close(self) -> None:
        self._serving.close()
        self._serving = ExitStack()


@pytest.fixture
def ground(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Iterator[Emulated]:
    with running_emulator(tmp_path_factory.mktemp("emulator")) as endpoint:
        deployer = Deployer(boto3.Session("test", "test", region_name=REGION), endpoint)
        found = Emulated(deployer, tmp_path)
        yield found
        found.close()
        deployer.close()


def test_an_afternoon_proves_what_can_be_proved_here_and_leaves_nothing(ground: Emulated, tmp_path: Path) -> None:
    record = Record(ground.name, ground.region, time.time())
    steps = [step for step in STEPS if step.name in SHORT or step.needs in AWS_ONLY]
    failed = afternoon(Afternoon(ground, record, pause_seconds=0.2), tmp_path, steps)
    report = (tmp_path / "report.md").read_text()
    wanted = {step.name: "skipped" if step.needs in AWS_ONLY else "proved" for step in steps}
    assert {name: came.outcome for name, came in record.came.items()} == wanted, report
    assert failed == 0
    assert ground.client("cloudformation").describe_stacks()["Stacks"] == []
    assert ground.client("dynamodb").list_tables()["TableNames"] == []
