"""What ``tests/scenarios`` ask of containers, shells and sessions, in machines that start, fall asleep and fail as MicroVMs do."""

from tests.scenarios.test_container_shell import *  # noqa: F403
from tests.scenarios.test_shell import *  # noqa: F403
from tests.scenarios.test_workspace import *  # noqa: F403
