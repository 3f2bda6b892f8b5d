"""The step "computer" of ``make afternoon`` on a local stack: what it asks of a deployment is asked of a real browser."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from infra.config import Config
from tests.afternoon.ground import AWS_ONLY, Settings
from tests.afternoon.record import Record
from tests.afternoon.steps import Afternoon, NotProved, computer
from tests.scenarios.test_computer import needs_browser
from tests.stack import Stack


@dataclass
class LocalGround:
    """A :class:`tests.afternoon.ground.Ground` whose deployment is a local stack, whatever its settings are."""

    stack: Stack
    name: str = "afternoon"
    region: str = "us-east-1"
    features: frozenset[str] = AWS_ONLY
    settings: Settings = field(default_factory=lambda: {"retain": False})
    another_image: Settings = field(default_factory=lambda: {"image_edition": "afternoon"})
    file_bytes: int = 1
    command_seconds: int = 1
    responses_at_once: int = 1
    deployed: list[Config] = field(default_factory=list)

    def look_at_account(self) -> str:
        return ""

    def deploy(self, settings: Settings) -> dict[str, str]:
        self.deployed.append(Config.model_validate(settings))
        return {}

    def url(self, outputs: Mapping[str, str]) -> str:
        return self.stack.url

    def destroy(self) -> None:
        """It is not this test's."""

    def client(self, service: str) -> Any:
        raise AssertionError(service)


def taken(ground: LocalGround, **fields: Any) -> str:
    return computer(
        Afternoon(ground, Record(ground.name, ground.region, time.time()), pause_seconds=0.1, _key=ground.stack.key, **fields)
    )


@needs_browser
def test_the_step_sees_a_page_clicks_and_takes_control(stack: Stack) -> None:
    ground = LocalGround(stack)
    said = taken(ground)
    assert said.endswith("commands saw no browser, a person had control, and the deployment went back")
    assert [config.computer for config in ground.deployed] == [True, False]


@needs_browser
def test_the_step_fails_if_a_browser_gets_out(stack: Stack) -> None:
    with pytest.raises(NotProved, match="a browser without a policy was not refused localhost:8000"):
        taken(LocalGround(stack), egress_host="localhost:8000")
