"""What every table does, whoever keeps it: the same tests over one machine's, the fake, and what stands in for DynamoDB."""

from collections.abc import Mapping
from typing import Any

import pytest
from moorage.errors import ConditionFailed
from moorage.store.schema import INDEX
from moorage.store.table import KEY_BYTES_MAX, RECORD_BYTES_MAX, SORT_KEY_BYTES_MAX, Record, RecordTooLarge, Table, Write, bytes_of

from tests.unit.store.memory import MemoryTable

KEY = {"PK": "p", "SK": "s"}


def record(sk: str, **attributes: Any) -> Record:
    return {"PK": "p", "SK": sk, **attributes}


async def sort_keys(table: Table, **bounds: Any) -> list[str]:
    return [found["SK"] for found in await table.query("p", **bounds)]


def place(row: Record) -> tuple[str, str]:
    return row["PK"], row["SK"]


VALUES: list[Any] = [
    *("", "x", "ä€\U0001f642", "\0", "\0B", "a\0b", 0, -7, 2**53 + 1, 2**64, -(10**37), 1.5, -0.25, 1e20, True, False, None),
    *(b"", b"\0\xff", b"x" * 1000, [], {}, [1, [2, {"a": None}]], [b"x", [b""]], {"a": {"b": b"\0"}}),
    *({"": 1}, {"\0": 1}, {"\0B": "eA=="}, {"\0\0B": b"x", "": {"": 2**70}}, {"\0N": "1"}),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_a_value_comes_back_as_it_was(table: Table, value: Any) -> None:
    await table.put({**KEY, "value": value})
    found = await table.get("p", "s")
    assert found == {**KEY, "value": value}
    assert isinstance(found["value"], bool) == isinstance(value, bool)
    assert await table.update("p", "s", set={"beside": value}) == {**KEY, "value": value, "beside": value}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1, {"a": -float("inf")}]], ids=repr)
async def test_what_is_no_number_is_refused(table: Table, value: Any) -> None:
    with pytest.raises(ValueError, match="number"):
        await table.put({**KEY, "value": value, "beside": None})
    with pytest.raises(ValueError, match="number"):
        await table.update("p", "s", set={"value": value}, must_exist=False)
    assert await table.get("p", "s") is None


async def test_what_no_table_holds_is_refused(table: Table) -> None:
    with pytest.raises(TypeError):
        await table.put({**KEY, "value": [object()]})


async def test_a_record_is_found_by_its_whole_key(table: Table) -> None:
    await table.put(record("s"))
    await table.put({"PK": "p", "SK": "s", "whole": "new"})
    assert await table.get("p", "s") == {"PK": "p", "SK": "s", "whole": "new"}
    assert await table.get("p", "s", consistent=False) == {"PK": "p", "SK": "s", "whole": "new"}
    assert [await table.get("p", "t"), await table.get("q", "s")] == [None, None]


async def test_where_no_record_can_stand_there_is_none(table: Table) -> None:
    for pk, sk in (("p" * (KEY_BYTES_MAX + 1), "s"), ("p", "s" * (SORT_KEY_BYTES_MAX + 1))):
        assert await table.get(pk, sk) is None
        assert await table.query(pk, prefix=sk) == []
        assert await table.delete(pk, sk) is None
        with pytest.raises(ConditionFailed):
            await table.update(pk, sk, set={"a": 1})
        with pytest.raises(ValueError, match="keys"):
            await table.put({"PK": pk, "SK": sk})
    for pk, sk in (("", "s"), ("p", "")):
        with pytest.raises(ValueError, match="keys"):
            await table.put({"PK": pk, "SK": sk})
    longest = {"PK": "p" * KEY_BYTES_MAX, "SK": "s" * SORT_KEY_BYTES_MAX}
    await table.put(longest)
    assert await table.get(longest["PK"], longest["SK"]) == longest


async def test_a_record_is_put_once_where_it_must_not_be_there_yet(table: Table) -> None:
    await table.put({**KEY, "n": 1}, if_absent=True)
    with pytest.raises(ConditionFailed) as failed:
        await table.put({**KEY, "n": 2}, if_absent=True)
    assert failed.value.item == {**KEY, "n": 1}
    assert await table.get("p", "s") == {**KEY, "n": 1}


async def test_an_update_says_the_record_as_it_is_then(table: Table) -> None:
    await table.put({**KEY, "kept": [1], "gone": 1, "n": 2})
    changed = await table.update(
        "p", "s", set={"new": {"a": b"x"}}, set_once={"kept": "other", "once": 1}, add={"n": 3, "m": -1}, remove=["gone", "none"]
    )
    assert changed == {**KEY, "kept": [1], "n": 5, "new": {"a": b"x"}, "once": 1, "m": -1}
    assert await table.get("p", "s") == changed


async def test_an_update_makes_a_record_where_it_may(table: Table) -> None:
    with pytest.raises(ConditionFailed) as failed:
        await table.update("p", "s", add={"n": 1})
    assert failed.value.item is None
    assert await table.update("p", "s", add={"n": 1}, must_exist=False) == {**KEY, "n": 1}
    assert await table.update("p", "t", must_exist=False) == {"PK": "p", "SK": "t"}


CONDITIONS: list[tuple[Mapping[str, Any], bool]] = [
    ({"condition": {"n": 1, "text": ""}}, True),
    ({"condition": {"n": 1, "text": "x"}}, False),
    ({"condition": {"none": 1}}, False),
    ({"condition": {"null": None}}, True),
    ({"condition": {"none": None}}, False),
    ({"condition": {"bytes": b"\0"}}, True),
    ({"condition": {"map": {"a": [1]}}}, True),
    ({"condition": {"map": {"a": [2]}}}, False),
    ({"condition": {"n": True}}, False),
    ({"condition": {"flag": 1}}, False),
    ({"condition": {"flag": True}}, True),
    ({"condition": {"n": "1"}}, False),
    ({"absent": ("none",)}, True),
    ({"absent": ("none", "n")}, False),
    ({"absent": ("null",)}, False),
    ({"below": {"n": 2}}, True),
    ({"below": {"n": 1}}, False),
    ({"below": {"none": 2}}, False),
    ({"below": {"text": 2}}, False),
    ({"below": {"n": 2}, "condition": {"flag": True}, "absent": ("none",)}, True),
    ({"below": {"n": 2}, "condition": {"flag": False}, "absent": ("none",)}, False),
    ({"is_there": True}, True),
    ({"is_there": False}, False),
]
THERE: Record = {**KEY, "n": 1, "text": "", "null": None, "bytes": b"\0", "map": {"a": [1]}, "flag": True}


@pytest.mark.parametrize(("conditions", "holds"), CONDITIONS, ids=repr)
async def test_a_write_is_made_if_its_conditions_hold(table: Table, conditions: Mapping[str, Any], holds: bool) -> None:
    changes: list[Write] = [
        Write("p", "s", set={"new": 1}, **conditions),
        Write("p", "s", record={**KEY, "new": 1}, **conditions),
        Write("p", "s", is_end=True, **conditions),
    ]
    afterwards: list[Record | None] = [{**THERE, "new": 1}, {**KEY, "new": 1}, None]
    for change, after in zip(changes, afterwards, strict=True):
        await table.put(THERE)
        if holds:
            await table.write(change)
        else:
            with pytest.raises(ConditionFailed) as failed:
                await table.write(change)
            assert failed.value.item == THERE
        assert await table.get("p", "s") == (after if holds else THERE)
        await table.put(THERE)
        other = Write.put(record("other"))
        assert await table.write_all([other, change]) == (() if holds else (1,))
        assert await table.get("p", "s") == (after if holds else THERE)
        assert (await table.delete("p", "other") is not None) == holds


async def test_an_end_says_what_was_there(table: Table) -> None:
    await table.put({**KEY, "n": 1})
    assert await table.delete("p", "s") == {**KEY, "n": 1}
    assert await table.delete("p", "s") is None


async def test_writes_together_are_made_all_or_none(table: Table) -> None:
    await table.put(record("a", n=1))
    await table.put(record("b", n=1))
    changes = [
        Write("p", "a", add={"n": 1}, condition={"n": 1}),
        Write("p", "b", is_end=True, condition={"n": 2}),
        Write.put(record("c"), if_absent=True),
        Write("p", "d", set={"n": 1}, is_there=True),
    ]
    assert await table.write_all(changes) == (1, 3)
    assert await table.query("p") == [record("a", n=1), record("b", n=1)]
    assert await table.write_all(changes[::2]) == ()
    assert await table.write_all(changes[::2]) == (0, 1)
    assert await table.query("p") == [record("a", n=2), record("b", n=1), record("c")]


async def test_a_hundred_different_records_are_written_together(table: Table) -> None:
    writes = [Write.put(record(f"{n:03}")) for n in range(101)]
    for wrong in (writes, [], [writes[0], writes[0]]):
        with pytest.raises(ValueError, match="together"):
            await table.write_all(wrong)
    assert await table.write_all(writes[:100]) == ()
    assert await sort_keys(table) == [f"{n:03}" for n in range(100)]


async def test_any_number_of_records_is_put_and_deleted(table: Table) -> None:
    await table.write_many([record(f"{n:03}") for n in range(60)])
    await table.write_many([record("x")], [("p", f"{n:03}") for n in range(1, 60)])
    assert await sort_keys(table) == ["000", "x"]
    await table.write_many()


async def test_each_of_many_writes_has_its_own_condition(table: Table) -> None:
    await table.write_many(record(f"{n:03}", n=n % 2) for n in range(150))
    changes = [Write("p", f"{n:03}", condition={"n": 0}, is_end=True) for n in range(150)]
    failed = await table.write_each([*changes, Write.put(record("000"), if_absent=True), Write("p", "x", is_there=True, is_end=True)])
    odd = {n: record(f"{n:03}", n=1) for n in range(1, 150, 2)}
    assert failed == {**odd, 151: None}
    assert await table.query("p") == [record("000"), *odd.values()]
    assert await table.write_each([]) == {}


async def test_the_neighbours_of_a_write_that_raises_are_done(table: Table) -> None:
    with pytest.raises(ValueError, match="keys"):
        await table.write_each([Write.put(record("a")), Write.put(record("s" * (SORT_KEY_BYTES_MAX + 1))), Write.put(record("c"))])
    assert await sort_keys(table) == ["a", "c"]


async def test_writes_in_turn_end_at_the_first_whose_condition_fails(table: Table) -> None:
    puts = [Write.put(record(name), if_absent=True) for name in "abc"]
    changed = Write("p", "a", set={"n": 1}, is_there=True)
    counts = [await table.write_in_turn(writes) for writes in ([puts[0], puts[1]], [puts[2], puts[1], changed], [puts[0]], [])]
    assert counts == [2, 1, 0, 0]
    assert await table.query("p") == [record(name) for name in "abc"]
    assert await table.write_in_turn([changed]) == 1
    assert await table.get("p", "a") == record("a", n=1)


async def test_a_write_in_turn_that_no_table_takes_leaves_out_those_behind_it(table: Table) -> None:
    with pytest.raises(ValueError, match="keys"):
        await table.write_in_turn([Write.put(record("a")), Write.put(record("s" * (SORT_KEY_BYTES_MAX + 1))), Write.put(record("c"))])
    assert "c" not in await sort_keys(table)


async def test_many_are_read_at_once(table: Table) -> None:
    await table.write_many(record(f"{n:03}", n=n) for n in range(250))
    wanted = [("p", f"{n:03}") for n in range(0, 300, 2)]
    found = await table.get_many([*wanted, *wanted, ("p", "s" * (SORT_KEY_BYTES_MAX + 1))], consistent=True)
    assert sorted(found, key=lambda one: int(one["n"])) == [record(f"{n:03}", n=n) for n in range(0, 250, 2)]
    assert await table.get_many([]) == []


async def test_attributes_that_are_not_wanted_are_left_out(table: Table) -> None:
    there = record("a", n=1, bytes=b"x", text="y")
    await table.put(there)
    left = [record("a", text="y")]
    assert await table.get_many([("p", "a")], without=("bytes", "n", "unknown")) == left
    assert await table.query("p", without=("bytes", "n", "unknown")) == left


ORDERED = [
    *("\x01", "A", "A\0", "A\x01", "Aa", "a", "a\x7f", "a\x80", "aé", "a\ud7ff", "a\ue000", "a\uffff", "a\U00010000", "a\U0010ffff"),
    "é",
]
"""By their bytes in UTF-8, where UTF-16 has U+10000 before U+E000."""


async def test_sort_keys_are_ordered_by_their_bytes(table: Table) -> None:
    assert sorted(ORDERED, key=str.encode) == ORDERED
    await table.write_many(record(sk) for sk in reversed(ORDERED))
    assert await sort_keys(table) == ORDERED
    assert await sort_keys(table, descending=True) == ORDERED[::-1]
    for prefix in ("a", "A", "a\ud7ff", "a\U0010ffff", "zz"):
        assert await sort_keys(table, prefix=prefix) == [sk for sk in ORDERED if sk.startswith(prefix)]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    "bounds",
    [
        {},
        {"prefix": "B#"},
        {"after": "B#1"},
        {"up_to": "B#1"},
        {"prefix": "B#", "after": "B#1"},
        {"prefix": "B#", "after": "A"},
        {"prefix": "B#", "up_to": "B#2"},
        {"prefix": "B", "up_to": "B#1"},
        {"prefix": "A#0", "up_to": "B#1", "after": "A#1"},
        {"after": "A#1", "up_to": "B#1"},
        {"after": "B#2", "up_to": "B#1"},
        {"after": "B#1", "up_to": "B#1"},
        {"prefix": "B#", "after": "C"},
    ],
    ids=repr,
)
async def test_a_range_has_its_bounds_and_its_limit(table: Table, bounds: Mapping[str, str], descending: bool) -> None:
    there = ["A#1", "B", "B#", "B#1", "B#12", "B#2", "B#3", "C#1"]
    await table.write_many([*(record(sk) for sk in there), {"PK": "q", "SK": "B#1"}])
    prefix, after, up_to = bounds.get("prefix", ""), bounds.get("after", ""), bounds.get("up_to", "~")
    expected = [sk for sk in there if after < sk <= up_to and (sk >= prefix if "up_to" in bounds else sk.startswith(prefix))]
    expected = expected[::-1] if descending else expected
    assert await sort_keys(table, descending=descending, **bounds) == expected
    for limit in (1, 2, 100):
        assert await sort_keys(table, descending=descending, limit=limit, **bounds) == expected[:limit]


async def test_a_range_of_many_pages_is_read_to_its_end(table: Table) -> None:
    text = "x" * 100_000
    await table.write_many(record(f"{n:02}", text=text) for n in range(25))
    found = await table.query("p")
    assert [len(one["text"]) for one in found] == [100_000] * 25
    assert await sort_keys(table, limit=20, descending=True) == [f"{n:02}" for n in range(24, 4, -1)]


async def test_the_index_gives_keys_alone(table: Table) -> None:
    def indexed(pk: str, sk: str, at: str) -> Record:
        return {"PK": pk, "SK": sk, "GSI1PK": "list", "GSI1SK": at}

    rows = [indexed("b", "2", "1"), indexed("a", "1", "2"), indexed("b", "1", "2"), indexed("a", "2", "21"), indexed("a", "3", "3")]
    await table.write_many({**row, "n": 1} for row in rows)
    half = [{"PK": "a", "SK": "4", "GSI1PK": "list"}, {"PK": "a", "SK": "5", "GSI1SK": "2"}]
    await table.write_many([*half, indexed("z", "1", "2") | {"GSI1PK": "x"}])
    found = await table.query("list", index=INDEX)
    assert [one["GSI1SK"] for one in found] == ["1", "2", "2", "21", "3"]
    assert sorted(found, key=place) == sorted(rows, key=place)
    assert [one["GSI1SK"] for one in await table.query("list", index=INDEX, prefix="2", descending=True)] == ["21", "2", "2"]
    assert [one["GSI1SK"] for one in await table.query("list", index=INDEX, up_to="2", limit=2)] == ["1", "2"]
    await table.update("a", "1", set={"GSI1SK": "9"})
    await table.update("b", "1", remove=["GSI1PK", "GSI1SK"])
    await table.delete("a", "3")
    assert [one["GSI1SK"] for one in await table.query("list", index=INDEX)] == ["1", "21", "9"]


async def test_a_record_holds_400_kib(table: Table) -> None:
    if isinstance(table, MemoryTable):
        pytest.skip("the fake does not count bytes")
    names: Record = {"map": {"é": [1, None, True, "ä"]}, "bytes": b"x" * 150_000, "empty": ""}
    fits: Record = {**KEY, **names, "text": ""}
    fits["text"] = "x" * (RECORD_BYTES_MAX - bytes_of(fits))
    await table.put(fits)
    assert await table.get("p", "s") == fits
    larger = fits | {"text": fits["text"] + "x"}
    with pytest.raises(RecordTooLarge):
        await table.put(larger)
    with pytest.raises(RecordTooLarge):
        await table.update("p", "s", set={"text": larger["text"]})
    with pytest.raises(RecordTooLarge):
        await table.write_all([Write.put(record("t")), Write("p", "s", set={"text": larger["text"]})])
    with pytest.raises(RecordTooLarge):
        await table.write_all([Write.put(record("t")), Write.put(larger)])
    assert await table.get("p", "t") is None
    assert await table.get("p", "s") == fits


async def test_a_record_that_was_read_is_the_readers_own(table: Table) -> None:
    given: Record = {**KEY, "list": [1]}
    await table.put(given)
    given["list"].append(2)
    found = await table.get("p", "s")
    assert found is not None
    found["list"].append(3)
    changed = await table.update("p", "s", set={"n": 1})
    changed["list"].append(4)
    assert await table.get("p", "s") == {**KEY, "list": [1], "n": 1}
