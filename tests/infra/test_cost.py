"""The prices in the documents are those that ``make cost`` computes."""

from dataclasses import replace

import pytest
from moorage.limits import CONTAINER_IDLE_MINUTES_DEFAULT

from infra.agent_loop import TOOL_MEMORY_MIB
from infra.config import Config
from infra.prices import PRICES
from tests.bench.cost import recorded, tables
from tests.infra.conftest import ROOT

US_EAST = PRICES["us-east-1"]


@pytest.mark.parametrize("name", ["README.md", "docs/aws.md"])
def test_the_documents_have_the_costs_of_turns_that_were_counted(name: str) -> None:
    lines = (ROOT / name).read_text().splitlines()
    assert [row for row in tables(recorded(), US_EAST, Config())[ROOT / name] if row not in lines] == []
    assert "dollars per 1,000 turns" in " ".join(lines)


def test_the_documents_have_what_a_deployment_costs_at_rest() -> None:
    text = (ROOT / "docs" / "aws.md").read_text()
    assert f"| **without containers (`provisioner: none`)** | **{US_EAST.at_rest(Config(provisioner='none')):.2f}** |" in text
    assert f"| **with MicroVMs** | **{US_EAST.at_rest(Config(provisioner='lambda_microvm')):.2f}** |" in text
    both = Config(provisioner={"1g": "lambda_microvm", "16g": "fargate"})
    assert f"all of Fargate, and one MicroVM image | **{US_EAST.at_rest(both):.2f}** |" in text
    assert f"| **with Fargate** | **{US_EAST.at_rest(Config()):.2f}** |" in text


def test_the_goals_of_cost_are_met() -> None:
    bare = [1000 * sum(price for part, price in turn.dollars(US_EAST, Config()).items() if part != "sandbox") for turn in recorded()]
    one_call, foreground, background, _, remote = bare
    assert one_call <= 0.05
    assert background <= 1.50
    assert background <= foreground <= 2.00
    assert remote <= foreground, "a call of a remote server is no dearer than a command"


def test_calls_of_remote_servers_need_no_sandbox_and_are_billed_as_steps() -> None:
    (remote,) = [turn for turn in recorded() if turn.remote_calls]
    dollars = remote.dollars(US_EAST, Config())
    assert (dollars["sandbox"], remote.counts.calls["ecs:RunTask"], remote.commands) == (0, 0, 0)
    longer = replace(remote, remote_seconds=remote.remote_seconds + 10).dollars(US_EAST, Config())
    held = remote.remote_calls * 10 * (TOOL_MEMORY_MIB + Config().model_memory_mib) / 1024  # by the step, and by the stream
    assert longer["Lambda"] - dollars["Lambda"] == pytest.approx(held * US_EAST.lambda_gb_second)


def test_a_microvm_costs_what_it_runs_until_it_sleeps() -> None:
    """The worked example of a report with an account's bill: 0.5 GB, a minute until it sleeps, $5.28 for 1,000 turns."""
    assert 1000 * US_EAST.microvm(107 + 3 + 60, 27) == pytest.approx(5.28, abs=0.06)


def test_the_documents_have_what_an_idle_sandbox_costs_that_stops_early() -> None:
    """Until the reaper's look, at most a minute later."""
    (turn,) = [turn for turn in recorded() if turn.title == "10 model calls and 9 shell calls, foreground"]
    kept = turn.dollars(US_EAST, Config())["sandbox"]
    second = kept / (turn.wall_seconds + CONTAINER_IDLE_MINUTES_DEFAULT * 60)
    lines = (ROOT / "docs" / "aws.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith(("| by default |", "| `auto_idle_seconds: 60`"))]
    dollars = [1000 * kept, 1000 * second * (turn.wall_seconds + 60 + 60)]
    assert [row.split(" | ")[1] for row in rows] == [f"{each:.2f}" for each in dollars]
    words = " ".join(lines)
    assert f"the counted turn of {turn.wall_seconds:.0f} seconds" in words
    assert f"A second costs ${1000 * second:.4f} per 1,000 turns." in words
    assert "so ${:.2f} to ${:.2f}".format(*(1000 * second * start for start in (20, 60))) in words


def test_the_goals_at_rest_are_met() -> None:
    assert US_EAST.at_rest(Config(provisioner="none")) <= 1
    assert US_EAST.at_rest(Config()) <= 16


def test_logs_and_further_zones_cost_an_endpoint_each() -> None:
    more = US_EAST.at_rest(Config(sandbox_logs=True)) - US_EAST.at_rest(Config())
    zones = US_EAST.at_rest(Config(availability_zones=2)) - US_EAST.at_rest(Config())
    assert (round(more, 2), round(zones, 2)) == (7.30, 14.60)
