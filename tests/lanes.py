"""Which worker runs which module of tests: ``pytest -n 4 --dist loadscope``.

Three workers are what two processors are known to stand: each may have stacks of its own, and sandboxes in them. Where they wait, for
time-outs, for memory to fill, for packages to be installed, processors idle. So each worker beyond the third is given modules that wait
and no others, and ends when there are none left; the three turn to them only when all else is done.

The first worker begins with the modules that synthesise deployments: to read the CDK takes each worker that does ten seconds of a core,
and several of them wait for one another's syntheses.
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
SYNTHESES: Final = ("tests/infra/", "tests/twin/")


def lane(scope: str) -> str:
    if scope.startswith(WAITING):
        return "waiting"
    return "syntheses" if scope.startswith(SYNTHESES) else "others"


def preferred(worker: int) -> tuple[str, ...]:
    """The lanes of a worker, the first one first."""
    if worker >= FULL_WORKERS_MAX:
        return ("waiting",)
    return ("others", "syntheses", "waiting") if worker else ("syntheses", "others", "waiting")


class Lanes(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types of its own
    def _assign_work_unit(self, node: "WorkerController") -> None:
        if found := next((scope for wanted in self._lanes(node) for scope in self.workqueue if lane(scope) == wanted), None):
            self.workqueue.move_to_end(found, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: "WorkerController") -> None:
        if self.workqueue and not node.shutting_down and not any(lane(scope) in self._lanes(node) for scope in self.workqueue):
            node.shutdown()  # It still runs what it was given.
            return
        super()._reschedule(node)

    def _lanes(self, node: "WorkerController") -> tuple[str, ...]:
        return preferred(int(node.gateway.id.removeprefix("gw")))
