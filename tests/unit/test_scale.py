"""The arithmetic and the simulation of docs/scale.md agree with each other, with what was counted, and with the document."""

import pytest

from tests.bench import scale
from tests.bench.cost import recorded


def test_the_document_is_what_the_program_writes() -> None:
    assert scale.DOCUMENT.read_text() == scale.document()


def test_the_mix_is_of_turns_that_were_counted() -> None:
    assert set(scale.MIX) == set(scale.turns()) <= {turn.title for turn in recorded()}
    assert sum(scale.MIX.values()) == pytest.approx(1)


def test_every_quota_is_asked_for_and_grows_with_the_turns() -> None:
    small, large = scale.demand(1_000), scale.demand(10_000)
    assert set(small) == {quota.name for quota in scale.QUOTAS}
    assert {name: large[name] / small[name] for name in small} == pytest.approx(dict.fromkeys(small, 10))


def test_microvms_are_started_woken_and_kept_by_conversation() -> None:
    small, large = scale.microvm_demand(1_000), scale.microvm_demand(10_000)
    assert set(small) == {quota.name for quota in scale.MICROVM_QUOTAS}
    assert {name: large[name] / small[name] for name in small} == pytest.approx(dict.fromkeys(small, 10))
    fargate = scale.demand(1_000)
    assert small["RunMicrovm"] == fargate["ECS: RunTask on Fargate"]
    assert small["Memory of MicroVMs, asleep or awake"] == fargate["Network interfaces of the region"] / 2, "half a GB each"


def test_each_provisioner_is_asked_for_its_share_of_the_containers() -> None:
    both, machines, tasks = scale.both_demand(1_000), scale.microvm_demand(1_000), scale.demand(1_000)
    assert set(both) == {quota.name for quota in scale.BOTH_QUOTAS}
    assert both["RunMicrovm"] + both["ECS: RunTask on Fargate"] == pytest.approx(tasks["ECS: RunTask on Fargate"])
    shares = [
        (both["RunMicrovm"], machines["RunMicrovm"]),
        (both["Network interfaces of the region"], tasks["Network interfaces of the region"]),
    ]
    assert [part / whole for part, whole in shares] == pytest.approx([0.9, 0.1])


def test_a_websocket_asks_for_connections_by_conversation_and_for_a_message_by_event() -> None:
    small, large = scale.socket_demand(1_000), scale.socket_demand(10_000)
    assert set(small) == {quota.name for quota in scale.SOCKET_QUOTAS}
    assert {name: large[name] / small[name] for name in small} == pytest.approx(dict.fromkeys(small, 10))
    # Little's law, and what the gateway itself says comes of the rate of new connections.
    assert small["Connections at once"] == pytest.approx(small["New connections"] * scale.connected_seconds())
    new, at_once = (quota.amount for quota in scale.SOCKET_QUOTAS[:2])
    assert at_once == new * 2 * 3600
    one = scale.turns()["1 model call, foreground"]
    assert scale.events(one) == scale.EVENTS_OF_A_CALL


def test_the_simulation_holds_as_many_environments_as_the_arithmetic_says() -> None:
    """Little's law is the calibration: over an hour with room for all, the mean of what is held is arrivals times seconds."""
    arrivals = 2.0
    held = scale.simulate(arrivals, concurrency=100_000, streams_percent=50, seconds=900)
    expected = scale.demand(int(arrivals * 86_400), peak=1)["Lambda: environments at once"]
    assert (held.refused, held.throttled) == ([], 0)
    assert expected * 0.8 < held.streams.most + held.steps.most < expected * 1.6


def test_a_seed_gives_the_same_hour_again() -> None:
    first, second = (scale.simulate(1.0, concurrency=50, streams_percent=50, seconds=600) for _ in range(2))
    assert (first.arrived, first.refused, first.throttled, first.waited) == (
        second.arrived,
        second.refused,
        second.throttled,
        second.waited,
    )


def test_streams_of_agents_that_take_all_environments_keep_their_own_steps_waiting() -> None:
    shared, apart = (
        scale.simulate(2.0, concurrency=200, streams_percent=percent, mix=scale.MIXES["agents"], seconds=600) for percent in (0, 50)
    )
    assert shared.throttled > apart.throttled
    assert shared.waited_p99 > apart.waited_p99
    assert apart.refused  # what has no room is told so at once
