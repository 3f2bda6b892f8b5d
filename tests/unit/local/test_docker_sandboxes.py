"""What starts sandboxes on this machine, and where the sockets of an engine's containers lie."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from moorage.errors import SettingsConflict
from moorage.local.docker_sandboxes import docker_environment
from moorage.local.provisioners import provisioner_of


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short path: sockets lie in it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


def test_what_starts_sandboxes_is_chosen_and_never_passed_over() -> None:
    assert [provisioner_of(each) for each in ({}, {"MOORAGE_PROVISIONER": "docker"})] == ["launcher", "docker"]
    with pytest.raises(SettingsConflict, match=r"MOORAGE_PROVISIONER is 'fargate'\. On one machine it is 'launcher' .* or 'docker'"):
        provisioner_of({"MOORAGE_PROVISIONER": "fargate"})


def test_sockets_lie_in_the_state_folder_where_its_path_is_short_enough(folder: Path) -> None:
    near, far = folder, folder / ("long" * 25)
    assert docker_environment({}, near) == {
        "MOORAGE_DOCKER_DEPLOYMENT": str(near),
        "MOORAGE_DOCKER_RUNTIME_DIR": str(near / "docker"),
    }
    elsewhere = Path(docker_environment({}, far)["MOORAGE_DOCKER_RUNTIME_DIR"])
    assert (elsewhere.parent, elsewhere.stat().st_mode & 0o777) == (Path("/tmp"), 0o700)
    elsewhere.rmdir()


OTHERS = "Sockets cannot lie in {}: it must be a folder that only its owner may enter, and yours."


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda at: at.mkdir(mode=0o755), OTHERS),
        (lambda at: at.symlink_to("/tmp"), OTHERS),
        (lambda at: at.write_text(""), "Sockets cannot lie in {}: File exists."),
    ],
    ids=["open to others", "a link", "a file"],
)
def test_a_folder_that_others_may_enter_holds_no_sockets(prepare: Callable[[Path], object], said: str, folder: Path) -> None:
    prepare(folder / "named")
    with pytest.raises(SettingsConflict) as refused:
        docker_environment({"MOORAGE_DOCKER_RUNTIME_DIR": str(folder / "named")}, folder)
    assert str(refused.value) == said.format(folder / "named")


def test_a_named_folder_with_too_long_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsConflict, match="its path is too long"):
        docker_environment({"MOORAGE_DOCKER_RUNTIME_DIR": str(tmp_path / ("long" * 25))}, tmp_path)
