"""A key is known by its id until it is revoked: what was made under it asks so."""

from typing import cast

from moorage.store.api_keys import ApiKeys
from moorage.store.table import Table

from tests.unit.store.memory import MemoryTable


async def test_a_key_is_known_until_it_is_revoked() -> None:
    keys = ApiKeys(cast("Table", MemoryTable()), clock=lambda: 1_800_000_000.0)
    (first, _), (second, _) = await keys.create("t"), await keys.create("t")
    assert [await keys.is_known(each) for each in (first.key_id, second.key_id, "key_0")] == [True, True, False]
    assert await keys.revoke(first.key_id)
    assert [await keys.is_known(each) for each in (first.key_id, second.key_id)] == [False, True]
