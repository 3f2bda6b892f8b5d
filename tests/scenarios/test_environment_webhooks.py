"""A receiver of webhooks beside a real stack, which is told of prewarmed environments."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from tests.processes import until
from tests.receivers import Receiver, receiver_beside
from tests.stack import Stack


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiver_beside() as running:
        yield running


@pytest.fixture(scope="module")
def own_client(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """Of a stack whose webhooks may go to this machine."""
    opened = {"MOORAGE_FETCH_ALLOWED_NETWORKS": "127.0.0.0/8,::1/128", "MOORAGE_EGRESS_PORTS": str(receiver.port)}
    stack = Stack(Path(tmp_path_factory.mktemp("told")), opened).start()
    yield stack.client()
    assert stack.stop() == 0


def test_a_prewarmed_environment_is_told_as_ready_or_failed(own_client: OpenAI, receiver: Receiver) -> None:
    kinds: Any = ["agent.environment.ready", "agent.environment.failed"]
    secret = own_client.webhooks.create(name="mine", url=receiver.url, event_types=kinds).signing_secret
    environments = own_client.beta.agents.environments
    good: Any = {"type": "openai_hosted", "setup_commands": [{"command": "touch made"}]}
    bad: Any = {"type": "openai_hosted", "setup_commands": [{"command": "exit 7"}]}
    made, broken = environments.create(environment=good), environments.create(environment=bad)
    until(lambda: len(receiver.sent) == 2)
    told = [sent.unwrapped(secret) for sent in receiver.sent]
    assert {(event.type, event.data.id) for event in told} == {(kinds[0], made.id), (kinds[1], broken.id)}
    assert (environments.retrieve(made.id).status, environments.retrieve(broken.id).status) == ("ready", "failed")
