"""Vector stores as the SDK drives them, and the steps that read their files, run here one by one."""

import shlex
from collections.abc import Callable
from typing import Any

from moorage import limits
from moorage.vector_stores.indexing import Indexing
from moorage.vector_stores.jobs import IndexState
from openai.types import VectorStore

from tests.unit.resources.service import Service
from tests.unit.resources.support import FakeSandbox

DAY = 24 * 3600
WHALES = b"# Whales\n\nThe blue whale is the largest animal that has ever lived.\n"
BRIDGES = b"The bridge of Remagen fell into the Rhine in March 1945.\n"


async def upload(service: Service, name: str, content: bytes) -> str:
    return (await service.sdk.files.create(file=(name, content), purpose="assistants")).id


async def play(service: Service, state: IndexState) -> IndexState:
    """One step, as the state machine would run it."""
    indexing: Indexing = service.runtime.vector_stores.indexing
    steps = {"index": indexing.index_step, "parse": indexing.parse_step, "rest": indexing.index_step}
    return await steps[state.next](IndexState.from_json(state.to_json()))


async def run(service: Service, *, steps_max: int = 200) -> list[str]:
    """All executions to their ends; answers the words that they went by."""
    words = []
    started: dict[str, dict[str, Any]] = service.runtime.stores.executions.started
    for name in [*started]:
        state = IndexState.from_json(started.pop(name))
        while state.next != "done":
            words.append(state.next)
            if state.next == "rest":
                service.clock.advance(limits.INDEXING_REST_SECONDS)
            assert len(words) < steps_max
            state = await play(service, state)
        service.runtime.stores.executions.status_of[name] = "SUCCEEDED"
    return words


async def store_with(service: Service, **files: bytes) -> tuple[VectorStore, dict[str, str]]:
    """A store that has read these files, and their ids by name (``_`` for the dot)."""
    ids = {name: await upload(service, name.replace("_", "."), content) for name, content in files.items()}
    made = await service.sdk.vector_stores.create(name="notes", file_ids=list(ids.values()))
    await run(service)
    return await service.sdk.vector_stores.retrieve(made.id), ids


async def found(service: Service, store_id: str, query: str, **options: Any) -> list[str]:
    return [hit.filename for hit in (await service.sdk.vector_stores.search(store_id, query=query, **options)).data]


def left_of(service: Service, *but: str) -> list[str]:
    """Records and objects of vector stores that still stand, the marks of deleted ones and ``but`` left out."""
    records = [f"{item['PK']['S']} {item['SK']['S']}" for item in service.store.records() if item["SK"]["S"] != "GONE"]
    kept = [record for record in records if "#X#" in record or "HELD#" in record]
    return sorted([*kept, *(key for key in service.store.objects() if "/F/" not in key)])


def before(thing: Any, name: str, act: Callable[..., Any]) -> None:
    """Do something once, the next time that a method of this object is called, before it is."""
    method = getattr(thing, name)

    async def called(*given: Any, **named: Any) -> Any:
        delattr(thing, name)
        await act(*given)
        return await method(*given, **named)

    setattr(thing, name, called)


def reads(text: str, exit_code: int = 0, said: str = "") -> Callable[[FakeSandbox, str], tuple[int, str]]:
    """Stands for ``moorage-text`` in a sandbox."""

    def program(sandbox: FakeSandbox, command: str) -> tuple[int, str]:
        name, _, path, target, *_ = shlex.split(command)
        assert (name, path in sandbox.files) == ("moorage-text", True)
        sandbox.write(target, text.encode())
        return exit_code, said

    return program


class Killed(BaseException):
    """The process is gone: nothing after it runs."""
