"""A check of ``effects/`` that fails shows what it has compared, as a test does."""

import pytest

pytest.register_assert_rewrite("tests.contract.effects")
