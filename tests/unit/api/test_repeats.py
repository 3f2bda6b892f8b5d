"""A repeat that comes while the first request is being put down."""

import asyncio
from typing import Any, cast

from moorage.model.remote_servers import RemoteServers
from moorage.store import keys
from moorage.store.table import Record

from tests.unit.api.served import Served
from tests.unit.loop.lab import Lab, say
from tests.unit.store.memory import MemoryTable


class SlowToSettle(MemoryTable):
    """The end of a claim is written when the claim has been read twice since its client was answered."""

    def __init__(self) -> None:
        super().__init__()
        self._looks_wanted = 0
        self._looked = asyncio.Event()

    async def put(self, record: Record, *, if_absent: bool = False) -> None:
        if record.get("ended"):
            self._looks_wanted = 2
            await self._looked.wait()
        await super().put(record, if_absent=if_absent)

    async def get(self, pk: str, sk: str, *, consistent: bool = True) -> Record | None:
        if self._looks_wanted and pk.startswith(keys.repeat("t", "")):
            self._looks_wanted -= 1
            if not self._looks_wanted:
                self._looked.set()
        return await super().get(pk, sk, consistent=consistent)


async def test_a_key_whose_response_was_not_stored_is_told_as_used_as_soon_as_it_was_answered() -> None:
    lab = Lab(say("Only once."), table=SlowToSettle())
    catalog = cast("Any", lab.runtime.catalog)
    catalog.remote_servers, catalog.default_skills = RemoteServers(), ()
    served = Served.of(lab)
    answers = [
        await served.ask("POST", "/responses", headers={"idempotency-key": "one"}, json={"model": "m", "input": "hi", "store": False})
        for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [200, 409]
    assert answers[1].json()["error"]["code"] == "idempotency_key_used"
    assert len(lab.model.requests) == 1
