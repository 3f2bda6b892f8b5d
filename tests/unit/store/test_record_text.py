"""What a record holds comes back from its text as it was."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from moorage.store.record_text import dump_record, load_record

_NAMES = st.sampled_from(["", "a", "\0", "\0B", "\0N", "\0\0B", "B"]) | st.text(max_size=3)
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(_NAMES, _VALUES, max_size=4))
def test_a_record_comes_back_from_its_text(values: dict[str, Any]) -> None:
    record = {"PK": "p", "SK": "s", **values}
    assert load_record(dump_record(record)) == record
