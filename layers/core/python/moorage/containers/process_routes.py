"""``/v1/processes/{container_id}``: what runs in the sandbox of a container. An extension of ours.

Its address is not below ``/v1/containers``, because another function serves it on AWS: one that reaches sandboxes. Looking does not
count as use, starts nothing, and wakes none that sleeps.
"""

from moorage.api.caller import Caller
from moorage.api.routing import Router
from moorage.errors import SandboxError, container_elsewhere, container_unavailable
from moorage.sandbox.exec_client import RunningProcess
from moorage.wire.answers import ListOf
from moorage.wire.operator_answers import ContainerProcess
from moorage.wire.responses import list_object

router = Router()


@router.get(
    "/processes/{container_id}",
    "listContainerProcesses",
    "What runs in the sandbox of a container, and on which ports it listens",
    statuses=(503,),
)
async def list_processes(caller: Caller, container_id: str) -> ListOf[ContainerProcess]:
    containers = caller.runtime.computers.containers
    record = await containers.get(caller.tenant_id, container_id)
    if record.sandbox is None or record.sandbox.state != "running":
        return list_object([], has_more=False)
    if not containers.sandboxes.reaches(record):
        raise container_elsewhere(record.id)
    try:
        async with containers.sandboxes.reach(record, looks_only=True) as live:
            running = await live.client.processes()
    except SandboxError as error:
        raise container_unavailable(error.message) from error
    return list_object([as_object(each) for each in running.processes], has_more=not running.is_complete)


def as_object(process: RunningProcess) -> ContainerProcess:
    return {
        "id": f"proc_{process.pid}",
        "object": "container.process",
        "pid": process.pid,
        "parent_pid": process.parent_pid,
        "command": process.command,
        "started_at": process.started_at_ms,
        "cpu_seconds": process.cpu_seconds,
        "memory_bytes": process.memory_bytes,
        "ports": None if process.ports is None else list(process.ports),
    }
