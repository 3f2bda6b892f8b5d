"""What the doctor finds in a deployment, and in a stack of this machine, by asking it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from moorage.cli.checks.deployment import of_deployment
from moorage.cli.checks.findings import CheckProgress, Finding, Level
from moorage.cli.checks.machine import of_machine
from moorage.cli.main import main
from moorage.cli.target import find
from moorage.local.exports import write_exports

from tests.unit.cli.deployment import CONTAINER, MODELS, Answer, completed, printed, refusal, serving
from tests.unit.cli.test_commands import local_state

REAL: Answer = (200, {"object": "list", "data": [{"id": "gpt", "object": "model", "created": 0, "owned_by": "moorage"}]})
EMBEDDER = {"id": "static-256", "object": "model", "created": 0, "owned_by": "moorage-embeddings"}
BOTH: Answer = (200, {**REAL[1], "data": [*REAL[1]["data"], EMBEDDER]})


def answers(
    models: Answer = REAL, stream: Answer | None = None, shell: Answer | None = None, vector: Answer | None = None
) -> dict[str, Answer | list[Answer]]:
    return {
        "POST /v1/embeddings": vector or (200, {"data": [{"embedding": [0.5] * 256}]}),
        "GET /v1/models": models,
        "POST /v1/responses": [stream or completed(), shell or printed("moorage-doctor done\n")],
        "POST /v1/containers": CONTAINER,
        "DELETE /v1/containers/cntr_1": (200, {"id": "cntr_1", "deleted": True}),
    }


def of(models: Answer = REAL, stream: Answer | None = None, shell: Answer | None = None, vector: Answer | None = None) -> list[Finding]:
    """What is found where a deployment answers so."""
    with serving(answers(models, stream, shell, vector)) as deployment:
        said = list(of_deployment(find(deployment.environ), {}))
        findings = [one for one in said if isinstance(one, Finding)]
        return [Finding(one.level, one.what.replace(deployment.url, "URL"), one.advice) for one in findings]


def test_a_good_deployment_is_found_good() -> None:
    findings = of()
    assert [finding.level for finding in findings] == [Level.OK] * 4
    assert findings[0].what == "URL answers; models: gpt"
    assert findings[1].what.startswith("'gpt' answered in 0.")
    assert findings[2].what.startswith("a sandbox started, ran a command and answered in 0.")
    assert findings[3].what == "a sandbox without a policy cannot get out"


def listed(count: int) -> Answer:
    return (200, {**REAL[1], "data": [{**REAL[1]["data"][0], "id": f"m{number}"} for number in range(count)]})


def test_every_model_is_asked_and_the_one_that_fails_is_told() -> None:
    away = refusal(502, "It is away.")
    said = answers(models=listed(9)) | {
        "POST /v1/responses": [*[completed()] * 6, away, *[completed()] * 2, printed("moorage-doctor done\n")]
    }
    with serving(said) as deployment:
        findings = [one for one in of_deployment(find(deployment.environ), {}) if isinstance(one, Finding)]
    assert sorted(body["model"] for address, body in deployment.requests if address == "POST /v1/responses") == [
        "demo",
        *(f"m{number}" for number in range(9)),
    ]
    assert [finding.what[5:] for finding in findings if finding.level is Level.FAIL] == ["did not answer: It is away."]
    assert [finding.what[:4] for finding in findings[1:10]] == [f"'m{number}'" for number in range(9)], "in the order of the list"


def test_models_that_were_not_asked_are_counted() -> None:
    findings = of(models=listed(103), stream=completed())
    assert Finding(Level.WARN, "3 more models were not asked", "The first 100 are.") in findings


def test_an_embedding_model_is_asked_for_one_vector() -> None:
    (well,) = [one for one in of(models=BOTH) if "embed" in one.what]
    assert (well.level, well.what.endswith("its vectors have 256 numbers")) == (Level.OK, True)
    (away,) = [one for one in of(models=BOTH, vector=refusal(502, "It is away.")) if "embed" in one.what]
    assert away == Finding(
        Level.FAIL,
        "'static-256' did not embed: It is away.",
        "Correct its [[embedding]] in models.toml: files wait for it, and stores that were made with it cannot be searched.",
    )


def test_what_takes_time_is_named_before_it_is_waited_for() -> None:
    with serving(answers()) as deployment:
        said = list(of_deployment(find(deployment.environ), {}))
    waits = [one.what for one in said if isinstance(one, CheckProgress)]
    assert waits == ["'gpt' is asked for an answer", "a sandbox is started and runs a command"]


def test_the_sandbox_probe_needs_no_real_model_and_deletes_its_container() -> None:
    for shell in (printed("moorage-doctor done\n"), refusal(500, "It broke.")):
        with serving(answers(shell=shell)) as deployment:
            list(of_deployment(find(deployment.environ), {}))
        made, asked, deleted = deployment.requests[-3:]
        assert made == ("POST /v1/containers", {"name": "moorage-doctor"})
        assert (asked[1]["model"], asked[1]["store"]) == ("demo", False)
        assert asked[1]["tools"] == [{"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_1"}}]
        assert deleted[0] == "DELETE /v1/containers/cntr_1"


def test_a_deployment_with_the_scripted_model_alone_is_warned_of() -> None:
    advice = "Start it with OPENAI_API_KEY, ANTHROPIC_API_KEY or MOORAGE_UPSTREAM_URL. docs/models.md says how a real one is named."
    assert of(models=MODELS)[1] == Finding(Level.WARN, "the scripted demo model answers: no other is configured", advice)


NO_ANSWER = "Check its key and address (models.toml, MOORAGE_UPSTREAM_URL). Here 'moorage logs' shows why, on AWS the function's log."
NO_SANDBOX = "The log says why: 'moorage logs' here, the tool step's on AWS, where 'moorage doctor --aws' shows quotas."


@pytest.mark.parametrize(
    ("findings", "at", "finding"),
    [
        pytest.param(
            lambda: of(models=refusal(401, "Incorrect API key provided.")),
            0,
            Finding(Level.FAIL, "URL refuses to list its models", "Incorrect API key provided."),
            id="a wrong key",
        ),
        pytest.param(
            lambda: of(stream=refusal(400, "The upstream refuses the key.")),
            1,
            Finding(Level.FAIL, "'gpt' did not answer: The upstream refuses the key.", NO_ANSWER),
            id="a model that refuses",
        ),
        pytest.param(
            lambda: of(stream=(200, [{"type": "response.failed", "response": {"error": {"message": "It broke."}}}])),
            1,
            Finding(Level.FAIL, "'gpt' did not answer: It broke.", NO_ANSWER),
            id="a model that fails",
        ),
        pytest.param(
            lambda: of(shell=refusal(400, "No sandbox can be had now.")),
            2,
            Finding(Level.FAIL, "no sandbox ran a command: No sandbox can be had now.", NO_SANDBOX),
            id="no sandbox",
        ),
        pytest.param(
            lambda: of(shell=printed("This deployment has no sandboxes of 1 GiB (memory_tiers in cdk.json).\n")),
            2,
            Finding(
                Level.WARN,
                "This deployment has no sandboxes of 1 GiB (memory_tiers in cdk.json).",
                "Hosted tools that run commands are refused: 'provisioner' and 'memory_tiers' in cdk.json say so.",
            ),
            id="a deployment without sandboxes",
        ),
        pytest.param(
            lambda: of(shell=printed("python3: not found\n")),
            2,
            Finding(Level.FAIL, "no sandbox ran a command: python3: not found", NO_SANDBOX),
            id="a sandbox in which the command fails",
        ),
        pytest.param(
            lambda: of(shell=printed("moorage-doctor reached DNS\nmoorage-doctor reached 203.0.113.7:443\nmoorage-doctor done\n")),
            3,
            Finding(
                Level.FAIL,
                "a sandbox without a policy reached 203.0.113.7:443, DNS",
                "Nothing but its exec server may be reachable: check the sandboxes' security group, subnets and DNS firewall.",
            ),
            id="a sandbox that gets out",
        ),
    ],
)
def test_what_a_deployment_cannot_do_is_named_with_what_to_do(findings: Callable[[], list[Finding]], at: int, finding: Finding) -> None:
    found = findings()
    assert found[at] == finding
    assert {other.level for other in found[:at] + found[at + 1 :]} <= {Level.OK}


@pytest.mark.parametrize(("host", "tries"), [("127.0.0.1", ["create_connection"]), ("localhost", ["create_connection", "getaddrinfo"])])
def test_a_sandbox_is_made_to_try_the_apis_address_and_its_name(host: str, tries: list[str]) -> None:
    with serving(answers()) as deployment:
        url = deployment.url.replace("127.0.0.1", host)
        list(of_deployment(find({"MOORAGE_URL": url, "MOORAGE_API_KEY": "sk-moorage-test"}), {}))
    (step, _) = json.loads(deployment.requests[-2][1]["input"].splitlines()[1])
    (command,) = step["shell"]["commands"]
    assert [name for name in ("create_connection", "getaddrinfo") if name in command] == tries


def test_an_address_that_is_not_the_apis_is_named() -> None:
    (finding,) = of(models=(200, "<html>Welcome</html>"))
    assert (finding.level, finding.what) == (Level.FAIL, "URL refuses to list its models")
    assert finding.advice.endswith("MOORAGE_URL is the address that SDKs take as base_url; it ends with /v1.")


def test_a_deployment_that_is_not_there_fails(free_port: int) -> None:
    url = f"http://127.0.0.1:{free_port}/v1"
    (finding,) = of_deployment(find({"MOORAGE_URL": url, "MOORAGE_API_KEY": "sk-moorage-test"}), {})
    assert finding == Finding(
        Level.FAIL,
        "the deployment does not answer",
        f"{url}/models cannot be reached: [Errno 111] Connection refused. 'moorage up' starts a local stack; "
        "MOORAGE_URL names another.",
    )


@pytest.mark.parametrize(
    ("shell", "code", "last"),
    [(printed("moorage-doctor done\n"), 0, "4 checks, 0 failed."), (refusal(400, "None."), 1, "3 checks, 1 failed.")],
)
def test_the_command_ends_with_1_if_anything_failed(shell: Answer, code: int, last: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(answers(shell=shell)) as deployment:
        assert main(["doctor"], deployment.environ) == code
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_programs_get_a_finding_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(answers(models=refusal(401, "Incorrect API key provided."))) as deployment:
        assert main(["doctor", "--json"], deployment.environ) == 1
    (line,) = capsys.readouterr().out.splitlines()
    said = {"level": "fail", "what": f"{deployment.url} refuses to list its models", "advice": "Incorrect API key provided."}
    assert json.loads(line) == said


def running_here(folder: Path, url: str) -> dict[str, str]:
    """What a stack that runs from another terminal has left in this folder."""
    local_state(folder)
    write_exports(folder / "env", {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "sk-moorage-test"})
    return {"MOORAGE_STATE_DIR": str(folder)}


def test_a_stack_that_runs_is_judged_by_its_own_settings_and_not_by_this_shells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(answers()) as deployment:
        assert main(["doctor"], running_here(tmp_path, deployment.url)) == 0
    said = capsys.readouterr().out
    assert "answers; models: gpt" in said
    assert "scripted" not in said
    assert " port " not in said


def test_a_stack_that_does_not_run_is_told_what_a_start_would_find(
    tmp_path: Path, free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["doctor"], running_here(tmp_path, f"http://127.0.0.1:{free_port}/v1") | {"MOORAGE_PORT": str(free_port)})
    said = capsys.readouterr().out
    assert "warn  the deployment does not answer" in said
    assert f"ok    port {free_port} is free" in said
    assert "The model is 'demo'" in said


def test_a_mistyped_setting_is_named() -> None:
    *_, last = of_machine({"MOORAGE_UPSTREAM_URI": "http://127.0.0.1:8000/v1"})
    assert last.what == "MOORAGE_UPSTREAM_URI is no setting; MOORAGE_UPSTREAM_URL is."


def test_a_table_that_cannot_be_read_is_named(free_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"MOORAGE_TABLE": "moorage", "AWS_REGION": "eu-west-1"}
    aws = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port}", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    done = subprocess.run(
        [sys.executable, "-m", "moorage", "doctor"],
        env={"PATH": os.environ["PATH"]} | environ | aws,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines()[0] == "fail  the table moorage cannot be read"
    assert done.stdout.splitlines()[2:4] == [
        "warn  the deployment was not asked",
        "      Set MOORAGE_URL (https://.../v1) and MOORAGE_API_KEY: they say where the API is and who asks.",
    ]
    assert (done.returncode, done.stderr) == (1, "")
