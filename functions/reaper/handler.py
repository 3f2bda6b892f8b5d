"""Once a minute: take up responses whose process died, and end what nobody uses any more.

Three functions: two live outside the sandboxes' network, from where Step Functions and ECS are reached, and one inside, from where
sandboxes are. All are harmless to run twice, or twice at once.
"""

import asyncio
from functools import cache
from typing import Any, Final

import boto3  # noqa: F401  # A function has more of a processor while it starts than in its first call (moorage/net/aws.py).
from moorage import limits
from moorage.agents.imports import settle_imports
from moorage.agents.listener import attend
from moorage.automations.delivery import invoke_due
from moorage.loop.expire import expire
from moorage.loop.recover import recover
from moorage.parallel import side_by_side
from moorage.runtime import Runtime, runtime_of_process
from moorage.telemetry import tell
from moorage.webhooks.delivery import deliver_due

_loop: Final = cache(asyncio.new_event_loop)
_runtime: Final = cache(lambda: attend(runtime_of_process()))


def recover_responses(_event: Any, _context: object) -> None:
    """Entry point: loops without an execution, events that webhook endpoints have not taken yet, automations that are due, and
    imports whose process died."""
    restarted, delivered, invoked, settled = _loop().run_until_complete(take_up(_runtime()))
    tell("recovered", {"restarted": restarted, "delivered": delivered, "invoked": invoked, "settled": settled})


async def take_up(runtime: Runtime) -> tuple[int, int, int, int]:
    """Side by side: endpoints may be slow, and responses must not wait for them. A failure of one does not stop the others."""
    works = (recover, deliver_due, invoke_due, settle_imports)
    restarted, delivered, invoked, settled = await side_by_side(lambda work: work(runtime), works, at_once=len(works))
    await runtime.process.rest(limits.OTLP_SECONDS_MAX)  # Traces of what was ended; Lambda stops the process afterwards.
    return restarted, delivered, invoked, settled


def expire_containers(_event: Any, _context: object) -> None:
    """Entry point: idle containers, expired content, and the warm pool."""
    settled = _loop().run_until_complete(expire(_runtime()))
    tell("expired", {"settled": settled})


def retire_sandboxes(_event: Any, _context: object) -> None:
    """Entry point: the unused sandboxes; ``expire_containers`` stops them."""
    runtime = _runtime()
    tell("retired", {"retired": _loop().run_until_complete(runtime.computers.containers.sweep.retire_idle(runtime.clock()))})
