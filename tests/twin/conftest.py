"""The twins read the templates that ``cdk synth`` makes: the default one, and the one with every option."""

import pytest

from tests.infra.conftest import Stacks, _node, company, everything, stacks
from tests.twin.template import Template

__all__ = ["_node", "company", "everything", "stacks"]


@pytest.fixture(scope="session")
def default(stacks: Stacks) -> Template:
    return Template.of(stacks.state, stacks.service)


@pytest.fixture(scope="session")
def full(everything: Stacks) -> Template:
    return Template.of(everything.state, everything.service)
