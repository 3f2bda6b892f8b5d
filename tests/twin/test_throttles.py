"""A minute in which AWS takes no requests: nothing fails for it, nothing runs twice, and the time lost is bounded.

The state machine's own Retry blocks are played on a clock that is only counted, with the jitter that Step Functions draws.
``test_refused_minutes.py`` plays those of S3 and ECS.
"""

import json
import random
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from moorage import limits
from moorage.loop.create import InlineFirstStep, PreparedResponse
from moorage.loop.recover import recover
from moorage.loop.tasks import Throttled, throttles_named
from moorage.state import LoopState, Next
from moorage.store.dynamodb import DynamoTable
from moorage.store.responses import StoredResponse
from moorage.store.step_functions import StepFunctions
from moorage.store.table import Record, Write
from moorage.store.throttling import is_throttle

from infra.agent_loop import ASL_FILE
from tests.stack import assert_well_formed
from tests.unit.loop.lab import Lab, first_state, say, shell

SEEDS = range(300)


def tasks() -> dict[str, dict[str, Any]]:
    """Every Task of the state machine by its name."""

    def found(states: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, state in states.items():
            if state["Type"] == "Task":
                yield name, state
            yield from found(state.get("ItemProcessor", {}).get("States", {}))

    return dict(found(json.loads(ASL_FILE.read_text())["States"]))


class Task:
    """A Task with its retriers, as Step Functions runs it."""

    def __init__(self, state: dict[str, Any], seed: int) -> None:
        self._retriers, self._chance = state["Retry"], random.Random(seed)
        self._used = [0] * len(self._retriers)
        self.seconds, self.runs = 0.0, 0

    def meets(self, error: str, *, until: float) -> bool:
        """Whether the task gets through, if it meets this error until so many seconds have passed."""
        while self.seconds < until:
            retrier = next(n for n, r in enumerate(self._retriers) if error in r["ErrorEquals"] or r["ErrorEquals"] == ["States.ALL"])
            rule = self._retriers[retrier]
            if self._used[retrier] >= rule["MaxAttempts"]:
                return False
            pause = min(rule["IntervalSeconds"] * rule["BackoffRate"] ** self._used[retrier], rule["MaxDelaySeconds"])
            self._used[retrier] += 1
            self.seconds += self._chance.uniform(0, pause)
        self.runs += 1
        return True


@pytest.mark.parametrize("name", tasks())
@pytest.mark.parametrize("error", ["Lambda.TooManyRequestsException", "Lambda.ServiceException", "Throttled"])
@pytest.mark.parametrize("seconds", [60, 300])
def test_no_step_fails_over_minutes_of_refusals_and_it_runs_once(name: str, error: str, seconds: float) -> None:
    played = [Task(tasks()[name], seed) for seed in SEEDS]
    assert [task.meets(error, until=seconds) for task in played] == [True] * len(played)
    assert {task.runs for task in played} == {1}
    # What is lost beyond the refusals is one pause at most.
    assert max(task.seconds for task in played) <= seconds + tasks()[name]["Retry"][0]["MaxDelaySeconds"]


@pytest.mark.parametrize("name", ["ModelStep", "RunTool", "ToolStep", "ContinueStep"])
def test_a_step_that_is_broken_is_not_tried_for_minutes(name: str) -> None:
    played = [Task(tasks()[name], seed) for seed in SEEDS]
    assert not any(task.meets("RuntimeError", until=120) for task in played)


REFUSALS = {
    "DynamoDB takes no more": ("ProvisionedThroughputExceededException", "PutItem"),
    "DynamoDB's table is asked too much": ("ThrottlingException", "Query"),
    "the account asks too much": ("RequestLimitExceeded", "UpdateItem"),
    "S3 is too busy": ("SlowDown", "PutObject"),
    "Step Functions starts no more": ("ThrottlingException", "StartExecution"),
    "ECS is asked too much": ("ThrottlingException", "RunTask"),
}


@pytest.mark.parametrize(("code", "operation"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_step_tells_the_state_machine_that_a_service_is_throttled(code: str, operation: str) -> None:
    with pytest.raises(Throttled) as told, throttles_named():
        raise ClientError({"Error": {"Code": code, "Message": "slow down"}}, operation)
    assert all(type(told.value).__name__ in task["Retry"][0]["ErrorEquals"] for task in tasks().values())


def test_any_other_refusal_is_an_error() -> None:
    with pytest.raises(ClientError), throttles_named():
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "PutItem")


def cancelled(*reasons: str) -> ClientError:
    """DynamoDB's answer to a transaction, with a reason for each of its writes."""
    error = {"Code": "TransactionCanceledException", "Message": "Transaction cancelled"}
    answer: Any = {"Error": error, "CancellationReasons": [{"Code": reason} for reason in reasons]}
    return ClientError(answer, "TransactWriteItems")


@pytest.mark.parametrize("reasons", [("None", "ThrottlingError"), ("ProvisionedThroughputExceeded", "TransactionConflict")])
def test_a_transaction_that_is_cancelled_for_a_throttle_is_one(reasons: tuple[str, ...]) -> None:
    assert is_throttle(cancelled(*reasons))


@pytest.mark.parametrize("reasons", [("ConditionalCheckFailed", "ThrottlingError"), ("None", "ValidationError"), ("None",), ()])
def test_one_that_is_cancelled_for_what_it_asks_for_is_none(reasons: tuple[str, ...]) -> None:
    assert not is_throttle(cancelled(*reasons))


async def test_a_transaction_that_is_cancelled_for_a_throttle_is_written_a_moment_later() -> None:
    reasons = [{"Code": "None"}, {"Code": "ThrottlingError"}]
    client = boto3.client("dynamodb", "us-east-1", aws_access_key_id="a", aws_secret_access_key="s")
    with Stubber(client) as stubber, ThreadPoolExecutor(1) as executor:
        error = "TransactionCanceledException"
        stubber.add_client_error("transact_write_items", error, modeled_fields={"CancellationReasons": reasons})
        stubber.add_response("transact_write_items", {})
        change = Write("a", "c", set={"x": 1}, condition={})
        assert await DynamoTable(client, "table", executor).write_together([{"PK": "a", "SK": "b"}], [change]) == ()
        stubber.assert_no_pending_responses()


@dataclass
class Pauses:
    """A clock on which pauses are only counted."""

    seconds: list[float] = field(default_factory=list)

    async def take(self, seconds: float) -> None:
        self.seconds.append(seconds)


async def test_what_a_batch_leaves_is_asked_for_with_growing_pauses() -> None:
    client = boto3.client("dynamodb", "us-east-1", aws_access_key_id="a", aws_secret_access_key="s")
    pauses = Pauses()
    keys = [{"PK": {"S": "a"}, "SK": {"S": name}} for name in "bcd"]
    with Stubber(client) as stubber, ThreadPoolExecutor(1) as executor:
        table = DynamoTable(client, "table", executor, pause=pauses.take)
        for found, left in ((keys[:1], keys[1:]), ([], keys[1:]), (keys[1:2], keys[2:]), (keys[2:], [])):
            later: Any = {"table": {"Keys": left}} if left else {}
            stubber.add_response("batch_get_item", {"Responses": {"table": found}, "UnprocessedKeys": later})
        assert await table.get_many([("a", name) for name in "bcd"]) == [{"PK": "a", "SK": name} for name in "bcd"]
        for left in (keys[1:], keys[1:], []):
            later = {"table": [{"PutRequest": {"Item": key}} for key in left]} if left else {}
            stubber.add_response("batch_write_item", {"UnprocessedItems": later})
        await table.write_many([{"PK": "a", "SK": name} for name in "bcd"])
        stubber.assert_no_pending_responses()
    assert pauses.seconds == [0.05, 0.1, 0.2, 0.05, 0.1]


# --- the whole loop ----------------------------------------------------------------------------------------------------------

MINUTE = 60.0


@dataclass
class Machine:
    """The state machine around a laboratory's steps: what a task raises is tried again by its own rules, on the laboratory's clock."""

    lab: Lab
    chance: random.Random

    async def task(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        rules = tasks()[name]["Retry"]
        used = [0] * len(rules)
        while True:
            try:
                return await work()
            except ClientError as error:
                seen = "Throttled" if is_throttle(error) else "ClientError"
            number = next(n for n, rule in enumerate(rules) if seen in rule["ErrorEquals"] or rule["ErrorEquals"] == ["States.ALL"])
            rule = rules[number]
            assert used[number] < rule["MaxAttempts"], f"{name} has failed"
            pause = min(rule["IntervalSeconds"] * rule["BackoffRate"] ** used[number], rule["MaxDelaySeconds"])
            used[number] += 1
            self.lab.now += self.chance.uniform(0, pause)

    async def run(self, stored: StoredResponse) -> None:
        state = first_state(stored)
        while state.next is not Next.DONE:
            if state.next is Next.TOOLS:
                await self.task("RunTool", partial(self.lab.tools, state))
            state = await self.task("ModelStep", partial(self.lab.step, state))


async def played_under_refusals(*, from_write: int, share: float, seed: int) -> tuple[Lab, StoredResponse, float]:
    """A response with two commands, while from its so-maniest write on, for a minute, this share of writes is refused."""
    lab, chance = Lab(shell("ls"), shell("pwd"), say("Done.")), random.Random(seed)
    stored = await lab.background()
    began, until, writes = lab.now, 0.0, 0

    async def refuse(record: Record) -> None:
        nonlocal until, writes
        writes += 1
        if writes == from_write:
            until = lab.now + MINUTE
        if lab.now < until and chance.random() < share:
            lab.now += 1  # botocore has tried five times by then
            raise ClientError({"Error": {"Code": "ProvisionedThroughputExceededException", "Message": "slow down"}}, "PutItem")

    lab.table.before_write = refuse
    lab.model.turns *= 1 + limits.STEP_ATTEMPTS_MAX
    await Machine(lab, chance).run(stored)
    return lab, stored, lab.now - began


@pytest.mark.parametrize("share", [1.0, 0.5])
async def test_a_minute_without_the_table_fails_no_response_and_runs_no_command_twice(share: float) -> None:
    for from_write in (1, 2, 4, 7, 10, 13):
        lab, stored, seconds = await played_under_refusals(from_write=from_write, share=share, seed=from_write)
        response = await lab.object_of(stored)
        assert (response["status"], response["error"]) == ("completed", None), f"refused from write {from_write} on"
        assert_well_formed(await lab.events(stored))
        asked = [item for item in response["output"] if item["type"] == "shell_call"]
        assert len(lab.sandboxes.executed) == len(asked) > 0, "each command has run once"
        assert seconds <= MINUTE + 2 * tasks()["ModelStep"]["Retry"][0]["MaxDelaySeconds"]


# --- Step Functions, when a response is handed over ----------------------------------------------------------------------------


async def taken_up(lab: Lab, stored: StoredResponse) -> dict[str, Any]:
    """The response object after Step Functions takes executions again, and the reaper has looked."""
    assert lab.executions.started == {}
    lab.executions.is_busy = False
    lab.now += limits.RECOVERY_SECONDS + 1
    assert await recover(lab.runtime) == 1
    (started,) = lab.executions.started.values()
    await lab.run(stored, LoopState.from_json(started))
    return await lab.object_of(stored)


async def test_the_reaper_starts_once_what_step_functions_did_not_take() -> None:
    lab = Lab(shell("ls"), say("Done."))
    lab.executions.is_busy = True
    stored = await lab.background()
    assert (await taken_up(lab, stored))["status"] == "completed"
    assert len(lab.sandboxes.executed) == 1
    lab.now += limits.RECOVERY_SECONDS + 1
    assert await recover(lab.runtime) == 0


async def test_a_foreground_response_that_is_not_handed_over_goes_on_later() -> None:
    lab = Lab(shell("ls"), say("Done."))
    lab.executions.is_busy = True
    stored = lab.stored(is_background=False, is_looping=False)
    heard: list[dict[str, Any]] = []
    inline = InlineFirstStep(lab.runtime, PreparedResponse(stored, [], is_streamed=True), heard.append)
    await inline.run()
    assert (inline.is_handed_over, [event["type"] for event in heard if event["type"] == "response.failed"]) == (True, [])
    assert (await taken_up(lab, stored))["status"] == "completed"
    assert (len(lab.model.requests), len(lab.sandboxes.executed)) == (2, 1), "neither the model nor the command is asked twice"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(None, True), ("ExecutionAlreadyExists", True), ("ThrottlingException", False), ("ExecutionLimitExceeded", False)],
)
async def test_what_step_functions_says_when_it_is_asked_to_start(code: str | None, outcome: bool) -> None:
    assert await starting(code) is outcome


async def test_a_start_that_no_waiting_mends_is_an_error() -> None:
    with pytest.raises(ClientError, match="AccessDenied"):
        await starting("AccessDeniedException")


async def starting(code: str | None) -> bool:
    config = Config(retries={"total_max_attempts": 1})
    client = boto3.client("stepfunctions", "us-east-1", aws_access_key_id="a", aws_secret_access_key="s", config=config)
    with Stubber(client) as stubber, ThreadPoolExecutor(1) as executor:
        if code is None:
            stubber.add_response("start_execution", {"executionArn": "arn:aws:e", "startDate": 0})
        else:
            stubber.add_client_error("start_execution", code)
        machine = "arn:aws:states:us-east-1:000000000000:stateMachine:loop"
        return await StepFunctions(client, machine, executor).start_soon("resp_1", {}, None)
