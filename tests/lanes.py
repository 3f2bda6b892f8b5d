"""Which worker runs which module of tests: ``pytest -n 4 --dist loadscope``.

Three workers are what two processors are known to stand: each may have stacks of its own, and sandboxes in them. Where they wait, for
time-outs, for memory to fill, for packages to be installed, processors idle. So each worker beyond the third is given modules that wait
and no others, and ends when there are none left; the three turn to them only when all else is done.
"""

from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

FULL_WORKERS_MAX: Final = 3
WAITING: Final = (
    "tests/unit/sandbox/",
    "tests/egress/",
    "tests/contract/test_wheel.py",
    "tests/contract/test_console_libraries.py",
    "tests/unit/aws/test_streaming_function.py",
    "tests/unit/knowledge/test_neighbours.py",
    "tests/unit/loop/test_cancellation.py",
    "tests/unit/loop/test_deferred_servers.py",
    "tests/unit/loop/test_image_generation.py",
    "tests/unit/loop/test_mcp.py",
    "tests/unit/loop/test_web_search.py",
    "tests/upgrade/test_versions.py",
)
"""Where more time is waited than used."""


def waits(scope: str) -> bool:
    return scope.startswith(WAITING)


class Lanes(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types of its own
    def _assign_work_unit(self, node: "WorkerController") -> None:
        wanted = self._is_for_waiting(node)
        if found := next((scope for scope in self.workqueue if waits(scope) == wanted), None):
            self.workqueue.move_to_end(found, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: "WorkerController") -> None:
        if self._is_for_waiting(node) and not any(map(waits, self.workqueue)):
            if not node.shutting_down:
                node.shutdown()  # It still runs what it was given.
            return
        super()._reschedule(node)

    def _is_for_waiting(self, node: "WorkerController") -> bool:
        return int(node.gateway.id.removeprefix("gw")) >= FULL_WORKERS_MAX
