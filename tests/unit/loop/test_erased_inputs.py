"""A response that is erased while a model step runs."""

import asyncio
from dataclasses import replace

from moorage import limits
from moorage.egress.fetch import Fetcher
from moorage.inputs import Inputs
from moorage.loop import finish
from moorage.state import Next
from moorage.store import keys, object_keys
from moorage.store.responses import Responses
from moorage.store.table import Record
from moorage.wire.types import Item

from tests.simulation import clock
from tests.unit.loop.lab import TENANT, Lab, first_state, say
from tests.unit.resources.web import Web, serving


class Blind(Responses):
    """The watch of a step looks once a second, and may see the erasure before the fetch. This one never sees it."""

    async def is_cancel_requested(self, tenant_id: str, response_id: str) -> bool:
        return False


async def test_a_step_keeps_nothing_of_a_url_that_it_fetches_after_the_erasure() -> None:
    """A function of Lambda's goes on when its execution has been stopped."""
    lab = Lab(say("Ice."))
    lab.runtime.stores = replace(
        lab.runtime.stores, responses=Blind(lab.table, lab.blobs, now_ms=lambda: int(lab.now * 1000), retention_seconds=30 * 24 * 3600)
    )
    async with serving(Web()) as web:
        web.page("/notes.txt", b"glaciers")
        fetcher = Fetcher(allowed_networks=("127.0.0.0/8", "::1/128"), ports=(web.port,))
        files = lab.runtime.stores.files
        lab.runtime.inputs = Inputs(lab.table, lab.blobs, files, fetcher, clock=lambda: lab.now, retention_seconds=3600)
        part = {"type": "input_file", "file_url": f"http://localhost:{web.port}/notes.txt"}
        message: Item = {"id": "msg_in", "type": "message", "role": "user", "content": [part]}
        stored = await lab.background(input_items=[message], container_id=None, tools=[])

        async def erase_first(record: Record) -> None:
            if record["SK"] == keys.PURGE and record["PK"] == keys.input_item(TENANT, "msg_in"):
                lab.table.before_write = None
                await finish.forget(lab.runtime.stores, stored)

        lab.table.before_write = erase_first
        await lab.step(first_state(stored))
    assert [path for path, _ in web.asked] == ["/notes.txt"]
    assert [key for key in lab.table.records if key[0] == keys.input_item(TENANT, "msg_in")] == []
    assert [key for key in lab.blobs.objects if key.startswith(object_keys.input_objects(TENANT, "msg_in"))] == []


def test_a_step_whose_response_is_erased_ends_and_writes_nothing() -> None:
    lab = Lab(say("Ice."))

    async def ran() -> None:
        stored = await lab.background(container_id=None, tools=[])

        async def erased() -> None:
            await finish.forget(lab.runtime.stores, stored)
            await asyncio.sleep(2 * limits.CANCEL_POLL_SECONDS)

        lab.model.before_answer = erased
        assert (await lab.step(first_state(stored))).next is Next.DONE
        assert [key for key in lab.table.records if key[0] == keys.response(TENANT, stored.response_id)] == []

    clock.run(ran())
