import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from moorage import limits, loop
from moorage.state import CALL, OUTCOME, LoopState, Next, PendingCall, StepOutcome
from moorage.wire.responses import TokenUsage

STATE = LoopState("resp_1", "t", "cntr_1", 3, Next.TOOLS, ("call_1", "call_2"), 1)
ENDED = StepOutcome(
    Next.TOOLS,
    7,
    (PendingCall("call_1", "shell_call", 2, 4, "sho_1"),),
    TokenUsage(input_tokens=100, output_tokens=20, cached_tokens=60, cache_write_tokens=5, reasoning_tokens=9),
    3,
    is_last=True,
)


ONE_CALL = replace(STATE, calls=("call_1",))


READING = LoopState("resp_1", "t", next=Next.READ, reader_id="cntr_2", readings=1, is_read=True)


@pytest.mark.parametrize("state", [STATE, ONE_CALL, STATE.done(), STATE.waiting(4), LoopState("resp_1", "t"), READING])
def test_a_state_comes_back_from_the_state_machine_as_it_went_in(state: LoopState) -> None:
    assert LoopState.from_json(json.loads(json.dumps(state.to_json()))) == state


@pytest.mark.parametrize(
    "outcome", [ENDED, StepOutcome(Next.MODEL, 1), StepOutcome(Next.DONE, 1, status="incomplete", incomplete_reason="x")]
)
def test_an_outcome_comes_back_from_the_table_as_it_went_in(outcome: StepOutcome) -> None:
    assert OUTCOME.unpack(json.loads(json.dumps(OUTCOME.pack(outcome)))) == outcome


def test_the_state_machine_sees_ids_and_one_word() -> None:
    def leaves(value: Any) -> list[Any]:
        nested = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
        return [value] if nested is None else [leaf for one in nested for leaf in leaves(one)]

    assert sorted(STATE.to_json()) == ["calls", "container_id", "from_step", "next", "response_id", "step", "tenant_id"]
    assert all(isinstance(leaf, int) or len(leaf) < 80 for leaf in leaves(STATE.to_json()))


def test_a_single_call_has_a_way_of_its_own_through_the_state_machine() -> None:
    no_calls = replace(STATE, calls=())
    assert [state.to_json()["next"] for state in (no_calls, ONE_CALL, STATE)] == ["tools", "tool", "tools"]


def test_only_a_waiting_state_says_for_how_long() -> None:
    assert ("wait_seconds" in STATE.to_json(), STATE.waiting(4).to_json()["wait_seconds"]) == (False, 4)


def test_a_state_that_does_not_read_documents_says_nothing_of_it() -> None:
    assert READING.done().to_json() == LoopState("resp_1", "t").done().to_json()


SERVICE = replace(STATE, calls=("call_1",), services=("call_1",))
MIXED = replace(STATE, services=("call_2",))


@pytest.mark.parametrize("state", [SERVICE, MIXED])
def test_where_calls_run_comes_back_from_the_state_machine(state: LoopState) -> None:
    assert LoopState.from_json(json.loads(json.dumps(state.to_json()))) == state


def test_calls_outside_of_the_sandboxes_network_have_their_own_way() -> None:
    assert [state.to_json()["next"] for state in (SERVICE, MIXED)] == ["service", "mixed"]
    assert MIXED.to_json()["routed"] == [{"call_id": "call_1", "place": "sandbox"}, {"call_id": "call_2", "place": "service"}]


def test_a_round_whose_service_call_has_run_goes_the_common_way() -> None:
    assert replace(MIXED, calls=("call_1",)).to_json()["next"] == "tool"


def test_a_call_says_where_it_runs() -> None:
    call = PendingCall("call_1", "dice_call", 2, 2, "call_1", "service")
    assert [CALL.unpack(CALL.pack(one)) for one in (call, ENDED.calls[0])] == [call, ENDED.calls[0]]
    outcome = replace(ENDED, calls=(ENDED.calls[0], replace(call, call_id="call_2")))
    assert (STATE.after(outcome).calls, STATE.after(outcome).services) == (("call_1", "call_2"), ("call_2",))


DEFINITION = Path(loop.__path__[0], "agent_loop.asl.json").read_text()


def test_the_state_machine_rests_as_long_as_the_limits_say() -> None:
    rest = json.loads(DEFINITION)["States"]["IndexRest"]
    assert rest == {"Type": "Wait", "Seconds": limits.INDEXING_REST_SECONDS, "Next": "IndexStep"}


def test_no_path_of_the_state_machine_has_a_reserved_word() -> None:
    """``where`` and ``parent`` are operators to LocalStack's."""
    paths = re.findall(r'"(\$[^"{]*)"', DEFINITION)
    assert "$$.Map.Item.Value.place" in paths
    assert [path for path in paths if {"where", "wherenot", "parent"} & set(re.split(r"\W+", path))] == []
