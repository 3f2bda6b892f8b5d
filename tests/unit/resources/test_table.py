"""What the table's client adds to DynamoDB's own."""

from tests.unit.resources.support import Store


async def test_a_range_that_ends_before_it_begins_is_empty(store: Store) -> None:
    """DynamoDB refuses it; what a client gives as ``after`` may lie beyond every key."""
    await store.table.put({"PK": "p", "SK": "A#1"})
    assert [len(await store.table.query("p", prefix="A#", after=after)) for after in ("A#", "A#1", "A#\U00064892", "B")] == [1, 0, 0, 0]
