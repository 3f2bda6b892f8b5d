"""The way out of MicroVMs: they reach the proxy by its address alone, all from one address, and say whose they are."""

from collections.abc import Iterator

import pytest
from moorage.egress.places import places_key
from moorage.local.children import egress_socket
from moorage.local.state_folder import kept_secrets
from moorage.store.deployment_keys import sandbox_key

from tests.scenarios.test_egress import (
    test_a_domain_outside_the_ceiling_is_refused_by_name,
    test_a_new_host_is_asked_for_and_let_through_once_it_is_allowed,
    test_a_refused_host_is_told_to_the_model_and_listed,
    test_another_policy_takes_another_container,
    test_new_values_keep_the_container_and_other_secrets_take_another,
    test_the_value_of_a_secret_is_nowhere_in_the_container,
    test_without_a_policy_there_is_no_network,
)
from tests.stack import Stack
from tests.twin.microvms.machine import Image
from tests.twin.microvms.service import CLOSED, POLICY, MicrovmTwin

__all__ = [
    "test_a_domain_outside_the_ceiling_is_refused_by_name",
    "test_a_new_host_is_asked_for_and_let_through_once_it_is_allowed",
    "test_a_refused_host_is_told_to_the_model_and_listed",
    "test_another_policy_takes_another_container",
    "test_new_values_keep_the_container_and_other_secrets_take_another",
    "test_the_value_of_a_secret_is_nowhere_in_the_container",
    "test_without_a_policy_there_is_no_network",
]


@pytest.fixture(scope="module")
def open_twin(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MicrovmTwin, Stack]]:
    folder = tmp_path_factory.mktemp("egress")
    key = lambda: places_key(sandbox_key(bytes.fromhex(kept_secrets(folder).content_key)))  # noqa: E731
    with MicrovmTwin(image, proxy=(str(egress_socket(folder)), key)) as twin:
        environment = {"MOORAGE_ALLOWED_EGRESS_DOMAINS": "api.example.com *.files.example.com", **twin.environment}
        running = Stack(folder, environment, module="tests.twin.microvms.up").start()
        yield twin, running
        assert running.stop() == 0


@pytest.fixture(scope="module")
def open_stack(open_twin: tuple[MicrovmTwin, Stack]) -> Stack:
    return open_twin[1]


def test_each_machine_has_named_its_container(open_twin: tuple[MicrovmTwin, Stack]) -> None:
    """After the others of this file."""
    twin, _ = open_twin
    assert None not in twin.places
    assert len(twin.places) > 1
    assert {connector for vm in twin.vms.values() for connector in vm["egressNetworkConnectors"]} <= {CLOSED, POLICY}
