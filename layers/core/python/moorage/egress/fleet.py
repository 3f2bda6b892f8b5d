"""The proxy as an ECS service of one task or none: it runs while some sandbox may use it, and costs nothing otherwise."""

from asyncio import get_running_loop
from concurrent.futures import Executor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_ecs import ECSClient


class ProxyFleet:
    def __init__(self, client: "ECSClient", service: str, executor: Executor) -> None:
        """``service`` is ``<cluster>/<service>``, as the stack names it in ``MOORAGE_EGRESS_SERVICE``."""
        self._client = client
        self._cluster, _, self._service = service.partition("/")
        self._executor = executor

    async def set_wanted(self, wanted: bool) -> bool:
        """Have it run or not. Setting what is set already changes nothing, so that everybody may do it at any time. False if it was
        wanted before, too, and does not run."""
        return await get_running_loop().run_in_executor(self._executor, self._set, int(wanted))

    def _set(self, count: int) -> bool:
        found = self._client.describe_services(cluster=self._cluster, services=[self._service])["services"]
        if not found or found[0]["desiredCount"] != count:
            self._client.update_service(cluster=self._cluster, service=self._service, desiredCount=count)
            return True
        return found[0].get("runningCount", count) >= count
