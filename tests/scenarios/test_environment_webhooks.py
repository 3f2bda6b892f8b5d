"""A receiver of webhooks beside a real stack with room for two sandboxes, which is told of environments."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from openai import OpenAI

from tests.processes import until
from tests.receivers import Receiver, receiver_beside
from tests.stack import Stack, say, script, shell


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiver_beside() as running:
        yield running


@pytest.fixture(scope="module")
def own_client(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """Of a stack whose webhooks may go to this machine."""
    opened = {"MOORAGE_FETCH_ALLOWED_NETWORKS": "127.0.0.0/8,::1/128", "MOORAGE_EGRESS_PORTS": str(receiver.port)}
    opened["MOORAGE_TENANT_SANDBOXES_MAX"] = "2"
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


def test_a_suspended_environment_comes_back_with_its_files(own_client: OpenAI, receiver: Receiver) -> None:
    """Two sessions are idle, and a third one takes the place of the sandbox that was idle longest."""
    kind: Any = "agent.environment.suspended"
    endpoint = own_client.webhooks.create(name="again", url=receiver.url, event_types=[kind])
    agents, hosted = own_client.beta.agents, cast("Any", {"type": "openai_hosted", "container_size": "small"})
    for environment in agents.environments.list():
        own_client.containers.delete(environment.id)
    receiver.sent.clear()

    def worked(order: str) -> Any:
        session = agents.sessions.create(agent={"model": "demo"}, environment=hosted, input=order)
        until(lambda: agents.sessions.retrieve(session.id).status == "idle", 180)
        return session

    first = worked(script(shell("echo kept > /workspace/kept.txt"), say("One.")))
    place = first.environment.id
    worked(script(shell("true"), say("Two.")))
    worked(script(shell("true"), say("Three.")))
    until(lambda: len(receiver.sent) == 1)
    event = receiver.sent[0].unwrapped(endpoint.signing_secret)
    assert (event.type, event.data.id, agents.environments.retrieve(place).status) == (kind, place, "suspended")
    with agents.sessions.stream(first.id, input=script(shell("cat /workspace/kept.txt"), say("Again."))) as stream:
        told = [event.type for event in stream]
    assert "agent.session.environment.reset" not in told
    outputs = [str(item.output) for item in agents.sessions.items.list(first.id) if item.type == "command_execution"]
    assert (outputs[0].splitlines()[0], agents.environments.retrieve(place).status) == ("kept", "ready")
    assert "The container has been started again" in outputs[0]
