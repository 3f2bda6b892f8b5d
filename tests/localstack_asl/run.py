"""The agent loop's state machine, unchanged, in LocalStack's own Step Functions interpreter; ``make test-localstack`` runs this.

A second opinion on what ``loop/agent_loop.asl.json`` means beside ministack's. The interpreter runs in this process: no server, no
Docker. The one thing that is replaced is its Lambda client: step functions are scripts here. Retries take their real times, so all
cases run side by side.
"""

import io
import json
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

from localstack.aws.api.stepfunctions import StateMachineType
from localstack.services.stepfunctions.asl.component.state.state_execution.state_task import lambda_eval_utils
from localstack.services.stepfunctions.asl.eval.evaluation_details import (
    AWSExecutionDetails,
    EvaluationDetails,
    ExecutionDetails,
    StateMachineDetails,
)
from localstack.services.stepfunctions.backend.execution_worker import SyncExecutionWorker

CORE = Path(__file__).resolve().parents[2] / "layers" / "core" / "python"
DEFINITION = (CORE / "moorage" / "loop" / "agent_loop.asl.json").read_text()
STEPS = ("ModelStep", "ToolStep", "ServiceStep", "ContinueStep", "FailResponse", "IndexStep", "ParseStep")
ACCOUNT, REGION = "000000000000", "us-east-1"
FAILS: dict[str, Any] = {"errorType": "RuntimeError", "errorMessage": "the step could not be run"}
"""The script's word for a step that raises."""

IDS = {"response_id": "resp_1", "tenant_id": "tenant_1", "container_id": "cntr_1", "step": 1}


def state(following: str, **more: Any) -> dict[str, Any]:
    return {**IDS, "next": following, **more}


def indexing(following: str) -> dict[str, Any]:
    return {"tenant_id": "tenant_1", "store_id": "vs_1", "execution": "vs_1-1", "next": following}


def item(call_id: str, **more: Any) -> dict[str, Any]:
    return {**IDS, "call_id": call_id, **more}


@dataclass(frozen=True)
class Outcome:
    """What a case came to: states in the order in which they were entered, inputs of each step, and how it ended."""

    entered: list[str]
    inputs: dict[str, list[dict[str, Any]]]
    end: str


@dataclass(frozen=True)
class Case:
    """What each step answers, call by call (the last answer stands for all that follow), and what must come of it."""

    name: str
    start: dict[str, Any]
    answers: dict[str, list[dict[str, Any]]]
    expected: Outcome
    seconds_min: float = 0.0
    in_any_order: bool = False
    """The states of calls side by side are entered as it happens; ``expected`` has them sorted then."""


@dataclass
class Script:
    """The Lambda client of one case."""

    answers: dict[str, list[dict[str, Any]]]
    inputs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def invoke(self, step: str, payload: bytes) -> dict[str, Any]:
        with self.lock:
            inputs = self.inputs.setdefault(step, [])
            answers = self.answers[step]
            answer = answers[min(len(inputs), len(answers) - 1)]
            inputs.append(json.loads(payload))
        failed = {"FunctionError": "Unhandled"} if answer is FAILS else {}
        return {"StatusCode": 200, "Payload": io.BytesIO(json.dumps(answer).encode()), **failed}


class Lambda:
    """boto3's client. Functions are named ``<number of the case>-<step>``."""

    def __init__(self, scripts: dict[str, Script]) -> None:
        self._scripts = scripts

    def invoke(self, *, FunctionName: str, Payload: bytes, **_: Any) -> dict[str, Any]:
        number, step = FunctionName.rpartition(":")[2].split("-")
        return self._scripts[number].invoke(step, Payload)


class Ended:
    """What the interpreter tells when an execution is over; it is run synchronously here, so nobody waits for it."""

    def terminated(self) -> None:
        return


GOES_ON = [state("done")]
ONE_CALL = state("tool", calls=["call_a"])
TWO_CALLS = state("tools", calls=["call_a", "call_b"])
ONE_SERVICE = state("service", calls=["call_a"])
ROUTED = {"call_a": "sandbox", "call_b": "service"}
MIXED = state("mixed", calls=list(ROUTED), routed=[{"call_id": call_id, "place": place} for call_id, place in ROUTED.items()])
READS = state("read", reader_id="cntr_2", readings=1, is_read=False)
HAS_READ = {**READS, "is_read": True}
BROKEN = "ProgramError ResponseFailed"
CASES = [
    Case(
        "a model step that finishes the response",
        state("model"),
        {"ModelStep": GOES_ON},
        Outcome(["Route", "ModelStep", "Route", "Done"], {"ModelStep": [state("model")]}, "ProgramEnded"),
    ),
    Case(
        "tool calls side by side, each with its ids, and the model step after them",
        state("model"),
        {"ModelStep": [TWO_CALLS, *GOES_ON], "ToolStep": [{}]},
        Outcome(
            ["Route", "ModelStep", "Route", "RunTools", "ToolStep", "ToolStep", "ModelStep", "Route", "Done"],
            {"ModelStep": [state("model"), TWO_CALLS], "ToolStep": [item("call_a"), item("call_b")]},
            "ProgramEnded",
        ),
    ),
    Case(
        "an execution that starts with tool calls",
        state("tools", calls=["call_a"]),
        {"ModelStep": GOES_ON, "ToolStep": [{}]},
        Outcome(
            ["Route", "RunTools", "ToolStep", "ModelStep", "Route", "Done"],
            {"ModelStep": [state("tools", calls=["call_a"])], "ToolStep": [item("call_a")]},
            "ProgramEnded",
        ),
    ),
    Case(
        "a single tool call, which needs no Map",
        state("model"),
        {"ModelStep": [ONE_CALL, *GOES_ON], "ToolStep": [{}]},
        Outcome(
            ["Route", "ModelStep", "Route", "RunTool", "ModelStep", "Route", "Done"],
            {"ModelStep": [state("model"), ONE_CALL], "ToolStep": [item("call_a")]},
            "ProgramEnded",
        ),
    ),
    Case(
        "a single tool call whose step fails four times: it is left to the model step",
        ONE_CALL,
        {"ModelStep": GOES_ON, "ToolStep": [FAILS]},
        Outcome(
            ["Route", "RunTool", "ModelStep", "Route", "Done"],
            {"ModelStep": [ONE_CALL], "ToolStep": [item("call_a")] * 4},
            "ProgramEnded",
        ),
    ),
    Case(
        "a single call outside of the sandboxes' network: its step gets no container",
        state("model"),
        {"ModelStep": [ONE_SERVICE, *GOES_ON], "ServiceStep": [{}]},
        Outcome(
            ["Route", "ModelStep", "Route", "RunService", "ModelStep", "Route", "Done"],
            {
                "ModelStep": [state("model"), ONE_SERVICE],
                "ServiceStep": [{key: value for key, value in item("call_a").items() if key != "container_id"}],
            },
            "ProgramEnded",
        ),
    ),
    Case(
        "calls side by side, each where it runs",
        MIXED,
        {"ModelStep": GOES_ON, "ToolStep": [{}], "ServiceStep": [{}]},
        Outcome(
            sorted(["Route", "RunMixed", "Where", "MixedToolStep", "Where", "ServiceStep", "ModelStep", "Route", "Done"]),
            {
                "ModelStep": [MIXED],
                "ToolStep": [item("call_a", place="sandbox")],
                "ServiceStep": [item("call_b", place="service")],
            },
            "ProgramEnded",
        ),
        in_any_order=True,
    ),
    Case(
        "a mixed round whose calls' steps fail: they are left to the model step",
        MIXED,
        {"ModelStep": GOES_ON, "ToolStep": [FAILS], "ServiceStep": [FAILS]},
        Outcome(
            sorted(
                [
                    *("Route", "RunMixed", "Where", "MixedToolStep", "LeaveMixedToModelStep"),
                    *("Where", "ServiceStep", "LeaveMixedToModelStep", "ModelStep", "Route", "Done"),
                ]
            ),
            {
                "ModelStep": [MIXED],
                "ToolStep": [item("call_a", place="sandbox")] * 4,
                "ServiceStep": [item("call_b", place="service")] * 4,
            },
            "ProgramEnded",
        ),
        in_any_order=True,
    ),
    Case(
        "a wait as long as the step says",
        state("model"),
        {"ModelStep": [state("wait", wait_seconds=2), *GOES_ON]},
        Outcome(
            ["Route", "ModelStep", "Route", "Wait", "ModelStep", "Route", "Done"],
            {"ModelStep": [state("model"), state("wait", wait_seconds=2)]},
            "ProgramEnded",
        ),
        seconds_min=2.0,
    ),
    Case(
        "the files of a vector store, of which one is a document",
        indexing("index"),
        {"IndexStep": [indexing("parse"), indexing("index"), indexing("done")], "ParseStep": [indexing("index")]},
        Outcome(
            ["Route", "IndexStep", "IndexRoute", "ParseStep", *["IndexRoute", "IndexStep"] * 2, "IndexRoute", "Done"],
            {"IndexStep": [indexing("index")] * 3, "ParseStep": [indexing("parse")]},
            "ProgramEnded",
        ),
    ),
    Case(
        "documents of an input, which the model step cannot read",
        state("model"),
        {"ModelStep": [READS, *GOES_ON], "ParseStep": [HAS_READ]},
        Outcome(
            ["Route", "ModelStep", "Route", "ReadDocuments", "ModelStep", "Route", "Done"],
            {"ModelStep": [state("model"), HAS_READ], "ParseStep": [READS]},
            "ProgramEnded",
        ),
    ),
    Case(
        "documents of an input, whose step fails four times: they are left to the model step",
        READS,
        {"ModelStep": GOES_ON, "ParseStep": [FAILS]},
        Outcome(
            ["Route", "ReadDocuments", "ModelStep", "Route", "Done"],
            {"ModelStep": [READS], "ParseStep": [READS] * 4},
            "ProgramEnded",
        ),
    ),
    Case(
        "a continuation in a new execution",
        state("model"),
        {"ModelStep": [state("continue")], "ContinueStep": [{}]},
        Outcome(
            ["Route", "ModelStep", "Route", "ContinueStep", "Done"],
            {"ModelStep": [state("model")], "ContinueStep": [state("continue")]},
            "ProgramEnded",
        ),
    ),
    Case(
        "a model step that fails once and is tried again",
        state("model"),
        {"ModelStep": [FAILS, *GOES_ON]},
        Outcome(["Route", "ModelStep", "Route", "Done"], {"ModelStep": [state("model")] * 2}, "ProgramEnded"),
    ),
    Case(
        "a model step that fails five times: the response fails",
        state("model"),
        {"ModelStep": [FAILS], "FailResponse": [{}]},
        Outcome(
            ["Route", "ModelStep", "FailResponse", "Broken"],
            {"ModelStep": [state("model")] * 5, "FailResponse": [state("model")]},
            BROKEN,
        ),
    ),
    Case(
        "a tool step that fails four times: its call is left to the model step",
        state("tools", calls=["call_a"]),
        {"ModelStep": GOES_ON, "ToolStep": [FAILS]},
        Outcome(
            ["Route", "RunTools", "ToolStep", "LeaveToModelStep", "ModelStep", "Route", "Done"],
            {"ModelStep": [state("tools", calls=["call_a"])], "ToolStep": [item("call_a")] * 4},
            "ProgramEnded",
        ),
    ),
    Case(
        "a word that the loop does not know: the response fails",
        state("rest"),
        {"FailResponse": [{}]},
        Outcome(["Route", "FailResponse", "Broken"], {"FailResponse": [state("rest")]}, BROKEN),
    ),
]


def run(number: str, case: Case, script: Script) -> tuple[Outcome, float]:
    """One execution from start to end, and its seconds."""
    definition = DEFINITION
    for step in STEPS:
        definition = definition.replace(f"${{{step}Arn}}", f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{number}-{step}")
    states, role = f"arn:aws:states:{REGION}:{ACCOUNT}", f"arn:aws:iam::{ACCOUNT}:role/loop"
    worker = SyncExecutionWorker(
        EvaluationDetails(
            aws_execution_details=AWSExecutionDetails(account=ACCOUNT, region=REGION, role_arn=role),
            execution_details=ExecutionDetails(
                arn=f"{states}:execution:loop:{number}",
                name=number,
                role_arn=role,
                inpt=case.start,
                start_time="2026-01-01T00:00:00.000Z",
            ),
            state_machine_details=StateMachineDetails(
                arn=f"{states}:stateMachine:loop", name="loop", typ=StateMachineType.STANDARD, definition=definition
            ),
        ),
        Ended(),
        None,
        {},
    )
    started = time.monotonic()
    worker.start()
    seconds = time.monotonic() - started
    entered = [e["stateEnteredEventDetails"]["name"] for e in worker.env.event_manager.get_event_history() if "Entered" in e["type"]]
    ended = worker.env.program_state()
    error = getattr(ended, "error", None) or {}
    inputs = {step: sorted(given, key=lambda each: str(each.get("call_id"))) for step, given in script.inputs.items()}
    return Outcome(entered, inputs, f"{type(ended).__name__} {error.get('error', '')}".strip()), seconds


def main() -> int:
    scripts = {str(number): Script(case.answers) for number, case in enumerate(CASES)}
    client = Lambda(scripts)

    def client_for(**_: Any) -> Lambda:
        return client

    lambda_eval_utils.boto_client_for = client_for
    logging.getLogger("localstack").setLevel(logging.CRITICAL)  # it prints each failure, and failures are wanted here
    with ThreadPoolExecutor(len(CASES)) as pool:
        results = list(pool.map(lambda numbered: run(str(numbered[0]), numbered[1], scripts[str(numbered[0])]), enumerate(CASES)))
    wrong = 0
    for case, (outcome, seconds) in zip(CASES, results, strict=True):
        if case.in_any_order:
            outcome = replace(outcome, entered=sorted(outcome.entered))
        right = outcome == case.expected and seconds >= case.seconds_min
        wrong += not right
        print(f"{'ok   ' if right else 'WRONG'} {seconds:5.1f} s  {case.name}")
        if not right:
            print(f"      expected {case.expected}\n      found    {outcome}")
    print(f"{len(CASES) - wrong} of {len(CASES)} cases as expected.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
