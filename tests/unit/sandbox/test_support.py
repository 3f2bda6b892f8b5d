"""What the tests of sandboxes know of the folder that they lie in."""

from pathlib import Path

from tests.unit.sandbox.support import can_be_read_by_all


def test_a_clone_below_a_private_folder_is_not_for_another_user(tmp_path: Path) -> None:
    assert can_be_read_by_all(Path("/"))
    clone = tmp_path / "private" / "clone"
    clone.mkdir(parents=True, mode=0o755)
    (tmp_path / "private").chmod(0o700)
    assert not can_be_read_by_all(clone)
