"""A check of ``effects/`` that fails shows what it has compared, as a test does. And the stores that keep the stores' contract."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from moorage.store.table import Table

from tests.contract.stores import BUCKETS, TABLES, Bucket, Places, places

pytest.register_assert_rewrite("tests.contract.effects")

store_places = pytest.fixture(scope="session", name="store_places")(places)


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest, store_places: Places, tmp_path: Path) -> Iterator[Table]:
    with ExitStack() as stack:
        yield store_places.table(request.param, tmp_path / "store", stack)


@pytest.fixture(params=BUCKETS)
def bucket(request: pytest.FixtureRequest, store_places: Places, tmp_path: Path) -> Iterator[Bucket]:
    with ExitStack() as stack:
        yield store_places.bucket(request.param, tmp_path / "store", stack)
