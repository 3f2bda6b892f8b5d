"""What the exec server tells of memory and processes, where its control group is the engine's and not the launcher's."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from configuration import ServerConfig
from execs import Execs
from health import HealthCounters
from moorage.sandbox.exec_client import ExecClient
from process_limit import ProcessLimit

from tests.unit.sandbox.conftest import until_up
from tests.unit.sandbox.support import TOKEN, exec_server, run
from tests.unit.sandbox.test_survival import BOMBS

TOO_MANY = "Too many processes: a container may have 200, and a command went on starting more."

CONFIG = ServerConfig({"token": TOKEN, "listen": "", "limits": {"memory_bytes": 64 << 20}})
OUT_OF_MEMORY = "\nOut of memory: the container has 64 MiB for all of its commands together; The kernel ended a process.\n"

LAYOUTS: dict[str, tuple[str, Callable[[int], str]]] = {
    # Recorded in a container of Docker 20.10 with 64 MiB, before and after "head -c 200m /dev/zero | tail".
    "version 1": (
        "memory/memory.oom_control",
        lambda kills: f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n",
    ),
    # As Linux 6.1 writes it (mm/memcontrol.c, memory_events_show; admin-guide/cgroup-v2.rst).
    "version 2": (
        "memory.events",
        lambda kills: f"low 0\nhigh 0\nmax {61 * kills}\noom {kills}\noom_kill {kills}\noom_group_kill 0\n",
    ),
    # Linux before 5.17 counts no kills of groups.
    "version 2 of an older kernel": (
        "memory.events",
        lambda kills: f"low 0\nhigh 0\nmax {61 * kills}\noom {kills}\noom_kill {kills}\n",
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_process_killed_for_memory_is_told_once_in_both_cgroup_versions(layout: str, tmp_path: Path) -> None:
    name, written = LAYOUTS[layout]
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(written(0))
    counters = HealthCounters(CONFIG, str(tmp_path))
    first = counters.mark()
    assert counters.news_since(first) == ""
    (tmp_path / name).write_text(written(1))
    assert counters.news_since(first) == OUT_OF_MEMORY
    assert counters.news_since(counters.mark()) == ""


def test_without_groups_there_are_no_news(tmp_path: Path) -> None:
    counters = HealthCounters(CONFIG, str(tmp_path))
    assert counters.news_since(counters.mark()) == ""


@pytest.mark.parametrize("name", ["pids.events", "pids/pids.events"], ids=["version 2", "version 1"])
def test_an_engines_group_says_nothing_of_forks_that_the_users_bound_refuses(name: str, tmp_path: Path) -> None:
    """The kernel looks at RLIMIT_NPROC before it asks the group (kernel/fork.c, copy_process), so that "max" stays 0."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("max 0\n")
    assert HealthCounters(CONFIG, str(tmp_path)).refused_forks() is None


class ExecsAfterABomb:
    """Nothing runs any more."""

    def __init__(self) -> None:
        self.refusals = [0, 500]
        self.killed: list[str] = []
        self.vitals = SimpleNamespace(refused_forks=lambda: self.refusals.pop(0))
        self.processes = SimpleNamespace(other_uid=61_238)

    def kill_all(self, notice: str) -> None:
        self.killed.append(notice)


def test_a_bomb_that_has_ended_costs_the_next_command_nothing() -> None:
    execs = ExecsAfterABomb()
    limit = ProcessLimit(CONFIG, cast("Execs", execs))
    limit.look()
    limit.look()
    assert execs.killed == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts commands as another user")
@pytest.mark.parametrize("bomb", ["the classic one", "one that stays", "one of threads"])
async def test_a_fork_bomb_is_ended_where_the_users_bound_is_all_there_is(bomb: str) -> None:
    """As in an engine's container. A folder that another user can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        with exec_server(Path(name), uid=61_237, python="/usr/bin/python3", limits={"processes": 200}) as process:
            async with ExecClient(process.handle) as sandbox:
                await until_up(sandbox)
                told = (await run(sandbox, BOMBS[bomb], timeout_ms=60_000, chars=100_000)).stderr
                for _ in range(100):
                    if TOO_MANY in told:
                        break
                    told += (await run(sandbox, "sleep 0.1", chars=100_000)).stderr
                assert TOO_MANY in told
                assert (await run(sandbox, "date | wc -l")).stdout == "1\n"
