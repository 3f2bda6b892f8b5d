"""What is made within one second is listed as it was made: the SDKs go through lists from the newest one, or from the oldest."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.resources.service import Service
from tests.unit.resources.test_files_api import upload
from tests.unit.resources.test_skills_api import push

Make = Callable[[Service, int], Awaitable[Any]]


async def _container(service: Service, number: int) -> Any:
    return await service.sdk.containers.create(name=f"c{number}")


async def _file(service: Service, number: int) -> Any:
    return await upload(service, f"{number}.txt")


async def _skill(service: Service, number: int) -> Any:
    return await push(service)


async def _vector_store(service: Service, number: int) -> Any:
    return await service.sdk.vector_stores.create(name=f"v{number}")


KINDS: dict[str, Make] = {"containers": _container, "files": _file, "skills": _skill, "vector_stores": _vector_store}


@pytest.mark.parametrize(("kind", "make"), KINDS.items(), ids=KINDS)
async def test_what_is_made_within_a_second_is_listed_as_it_was_made(service: Service, kind: str, make: Make) -> None:
    service.clock.now = 1_800_000_000.25
    made = []
    for number in range(5):
        made.append((await make(service, number)).id)
        service.clock.advance(0.0005)
    listed = getattr(service.sdk, kind).list
    assert [each.id async for each in listed(order="asc", limit=2)] == made
    assert [each.id async for each in listed(order="desc", limit=2)] == made[::-1]
