"""Tokens that only this deployment reads, and only for the tenant that they were made for."""

import pytest
from moorage.store.sealed import Sealer

HERE, ELSEWHERE = Sealer(lambda: b"a" * 32), Sealer(lambda: b"b" * 32)


def test_what_was_sealed_is_read_again() -> None:
    token = HERE.seal("acme", "the notes, ⚓")
    assert HERE.open("acme", token) == "the notes, ⚓"
    assert "notes" not in token
    assert HERE.seal("acme", "the notes, ⚓") != token


@pytest.mark.parametrize("token", ["", "x", "mrg1", "mrg1.", "mrg1..", "mrg1.00000000.AAAA", "gAAAA", "ü.ü.ü"])
def test_what_is_no_token_is_not_read(token: str) -> None:
    assert HERE.open("acme", token) is None


def test_other_tenants_deployments_and_damaged_tokens_are_not_read() -> None:
    token = HERE.seal("acme", "notes")
    assert HERE.open("other", token) is None
    assert ELSEWHERE.open("acme", token) is None
    assert HERE.open("acme", token[:-4] + "AAAA") is None
    assert HERE.open("acme", token[:14]) is None


def test_the_key_is_not_shown() -> None:
    assert "a" * 32 not in repr(HERE)
