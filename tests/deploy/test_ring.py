"""The deployed stack, called as a client calls it: gateway, authorizer, functions, state machine, ECS task, bucket."""

import io
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from moorage.skills import bundle
from openai.types.responses import ResponseCompletedEvent, ResponseCreatedEvent

from infra.deployed import closing
from tests.deploy.conftest import REGION, ROOT, SETTINGS, Deployment
from tests.infra.synthesis import context_of, synthesise
from tests.twin import calls
from tests.twin.iam import Account, refused
from tests.twin.serve import deployed_names, template_of
from tests.unit.skills.archives import MANIFEST, skill, zip_of

_RESPONSE_SECONDS_MAX = 600
"""When a test gives up. Beside twenty others a first sandbox has taken longer than three minutes, and was none the worse for it."""

pytestmark = pytest.mark.timeout(900)
_DEMO = {"model": "demo"}


def test_the_packages_have_the_byte_code_of_all_their_modules(assembly: Path) -> None:
    """Lambda's folders are read-only, so Python would compile them at each cold start."""
    packages = {*assembly.glob("asset.*/python"), *(settings.parent for settings in assembly.glob("asset.*/settings.json"))}
    modules = [module for package in packages for module in package.rglob("*.py")]
    assert len(modules) > 1_000
    assert [module for module in modules if not Path(cache_from_source(module)).exists()] == []


@pytest.fixture
def api(deployment: Deployment) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {deployment.api_key}"}
    with httpx.Client(base_url=f"{deployment.base_url}/", headers=headers, timeout=60, trust_env=False) as client:
        yield client


def script(*steps: dict[str, Any]) -> str:
    """What makes the demo model play these steps."""
    return f"```moorage-script\n{json.dumps(steps)}\n```"


def ended(api: httpx.Client, response_id: str) -> dict[str, Any]:
    """The response when it has come to its end."""
    deadline = time.monotonic() + _RESPONSE_SECONDS_MAX
    while True:
        response: dict[str, Any] = api.get(f"responses/{response_id}").raise_for_status().json()
        if response["status"] not in ("queued", "in_progress"):
            return response
        assert time.monotonic() < deadline, f"still {response['status']}: {json.dumps(response)[:1000]}"
        time.sleep(0.2)


def shell(*commands: str, **more: Any) -> dict[str, Any]:
    return {"shell": {"commands": list(commands), **more}}


def in_background(api: httpx.Client, text: str, **more: Any) -> dict[str, Any]:
    """Create a background response with a shell and wait for its end."""
    tools = [{"type": "shell", "environment": {"type": "container_auto"}}]
    request = {**_DEMO, "input": text, "background": True, "tools": tools, **more}
    created = api.post("responses", json=request).raise_for_status().json()
    assert created["status"] == "queued"
    return ended(api, created["id"])


def tasks(deployment: Deployment) -> list[dict[str, Any]]:
    """The tasks that run."""
    ecs = deployment.client("ecs")
    found: list[dict[str, Any]] = [
        task
        for arn in ecs.list_tasks(cluster="moorage")["taskArns"]
        for task in ecs.describe_tasks(cluster="moorage", tasks=[arn])["tasks"]
    ]
    return found


def records(deployment: Deployment, partition: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = deployment.client("dynamodb").query(
        TableName=deployment.outputs["TableName"],
        KeyConditionExpression="PK = :pk",
        ExpressionAttributeValues={":pk": {"S": partition}},
    )["Items"]
    return found


def expire(deployment: Deployment) -> None:
    """One look of the reaper."""
    functions = deployment.client("lambda").list_functions()["Functions"]
    (expiry,) = [f["FunctionName"] for f in functions if "FunctionsExpiry" in f["FunctionName"]]
    answer = deployment.client("lambda").invoke(FunctionName=expiry, Payload=b"{}")
    assert "FunctionError" not in answer, answer["Payload"].read()


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer sk-moorage-unknown"}, {"authorization": "Basic x"}])
def test_a_stranger_is_turned_away_in_openais_words(deployment: Deployment, headers: dict[str, str]) -> None:
    answer = httpx.get(f"{deployment.base_url}/models", headers=headers, timeout=60, trust_env=False)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"


def test_a_foreground_response_is_answered_by_the_function_alone(deployment: Deployment, api: httpx.Client) -> None:
    response = api.post("responses", json={**_DEMO, "input": "hello"}).raise_for_status().json()
    executions = deployment.client("stepfunctions").list_executions(stateMachineArn=deployment.outputs["StateMachineArn"])
    assert response["status"] == "completed"
    assert response["id"] not in [execution["name"] for execution in executions["executions"]]


def test_a_background_shell_runs_in_an_ecs_task_and_leaves_its_file(deployment: Deployment, api: httpx.Client) -> None:
    response = in_background(
        api, script(shell("echo 42 > /mnt/data/answer.txt && cat /mnt/data/answer.txt"), {"say": "It was {{output}}"})
    )
    call, output, message = response["output"]
    container_id = call["environment"]["container_id"]
    (file,) = api.get(f"containers/{container_id}/files").raise_for_status().json()["data"]
    content = api.get(f"containers/{container_id}/files/{file['id']}/content")
    executions = deployment.client("stepfunctions").list_executions(stateMachineArn=deployment.outputs["StateMachineArn"])
    assert response["status"] == "completed"
    assert output["output"] == [{"stdout": "42\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
    assert "42" in message["content"][0]["text"]
    assert file["path"] == "/mnt/data/answer.txt"
    assert content.status_code == 302
    assert httpx.get(content.headers["location"], trust_env=False).text == "42\n"
    assert response["id"] in [execution["name"] for execution in executions["executions"]]


def test_a_container_keeps_its_task_over_two_responses(deployment: Deployment, api: httpx.Client) -> None:
    first = in_background(api, script(shell("echo kept > /tmp/note"), {"say": "ok"}))
    container_id = first["output"][0]["environment"]["container_id"]
    tools = [{"type": "shell", "environment": {"type": "container_reference", "container_id": container_id}}]
    second = in_background(api, script(shell("cat /tmp/note"), {"say": "ok"}), tools=tools)
    started_by = [task["startedBy"].split("/")[0] for task in tasks(deployment)]
    assert second["output"][1]["output"][0]["stdout"] == "kept\n"
    assert started_by.count(container_id) == 1


def test_a_task_is_given_no_role_no_public_address_and_the_closed_group(deployment: Deployment, api: httpx.Client) -> None:
    in_background(api, script(shell("true"), {"say": "ok"}))
    functions = deployment.client("lambda").list_functions()["Functions"]
    (tool_step,) = [f for f in functions if "FunctionsToolStep" in f["FunctionName"]]
    variables = tool_step["Environment"]["Variables"]
    definition = deployment.client("ecs").describe_task_definition(taskDefinition=variables["MOORAGE_FARGATE_TASK_DEFINITION_1G"])[
        "taskDefinition"
    ]
    group = deployment.client("ec2").describe_security_groups(GroupIds=[variables["MOORAGE_FARGATE_SECURITY_GROUP"]])
    assert not definition.get("taskRoleArn")
    assert "sandbox without network" in group["SecurityGroups"][0]["Description"]


def test_the_reaper_sees_the_tasks_and_leaves_those_with_an_owner(deployment: Deployment, api: httpx.Client) -> None:
    first = in_background(api, script(shell("echo kept > /tmp/mark"), {"say": "ok"}))
    expire(deployment)
    container_id = first["output"][0]["environment"]["container_id"]
    tools = [{"type": "shell", "environment": {"type": "container_reference", "container_id": container_id}}]
    second = in_background(api, script(shell("cat /tmp/mark"), {"say": "ok"}), tools=tools)
    assert records(deployment, "ORPHANS") == []
    assert second["output"][1]["output"][0]["stdout"] == "kept\n"


def test_a_file_goes_through_the_gateway_and_back(api: httpx.Client) -> None:
    data = bytes(range(256)) * 100
    made = api.post("files", files={"file": ("data.bin", data)}, data={"purpose": "user_data"}).raise_for_status().json()
    content = api.get(f"files/{made['id']}/content")
    assert (made["bytes"], content.status_code) == (len(data), 302)
    assert httpx.get(content.headers["location"], trust_env=False).content == data


def test_the_sdk_streams_and_reads_on_where_a_stream_ended(deployment: Deployment) -> None:
    with openai.OpenAI(base_url=deployment.base_url, api_key=deployment.api_key, max_retries=0) as client:
        text = script({"delta_ms": 20}, {"say": "one two three four"})
        events = list(client.responses.create(model="demo", input=text, stream=True))
        first = events[0]
        assert isinstance(first, ResponseCreatedEvent)
        rest = list(client.responses.retrieve(first.response.id, stream=True, starting_after=3))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
    assert [event.type for event in rest] == [event.type for event in events[4:]]


def test_the_sdk_follows_a_hosted_shell_through_functions_and_loop(deployment: Deployment) -> None:
    with openai.OpenAI(base_url=deployment.base_url, api_key=deployment.api_key, max_retries=0) as client:
        stream = client.responses.create(
            model="demo",
            input=script(shell("printf hello"), {"say": "It said {{output}}"}),
            tools=[{"type": "shell", "environment": {"type": "container_auto"}}],
            stream=True,
        )
        events = list(stream)
    last = events[-1]
    assert isinstance(last, ResponseCompletedEvent)
    assert last.response.output_text.endswith("\nhello")
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_the_sdk_uploads_a_picture_as_it_is(deployment: Deployment) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 64
    with openai.OpenAI(base_url=deployment.base_url, api_key=deployment.api_key, max_retries=0) as client:
        made = client.files.create(file=("chart.png", picture), purpose="user_data")
        assert (made.bytes, client.files.content(made.id).read()) == (len(picture), picture)


@pytest.mark.skipif(os.geteuid() != 0, reason="commands of a task are another user than its server only where root starts it")
def test_a_skill_goes_through_the_gateway_into_a_task(deployment: Deployment) -> None:
    packed = zip_of(skill())
    with openai.OpenAI(base_url=deployment.base_url, api_key=deployment.api_key, max_retries=0) as client:
        made = client.skills.create(files=("make-tables.zip", packed))
        skills = [{"type": "skill_reference", "skill_id": made.id}, {"type": "skill_reference", "skill_id": "moorage-sqlite"}]
        tool: Any = {"type": "shell", "environment": {"type": "container_auto", "skills": skills}}
        look = "cat /home/oai/skills/make-tables-*/SKILL.md; ls -d /home/oai/skills/*/ | wc -l; touch /home/oai/skills/mine"
        response = client.responses.create(model="demo", input=script(shell(look), {"say": "ok"}), tools=[tool])
        answer: Any = response.to_dict()
        content = client.skills.content.retrieve(made.id).read()
        client.skills.delete(made.id)
    (said,) = answer["output"][1]["output"]
    told = answer["tools"][0]["environment"]["skills"]
    assert said["stdout"] == f"{MANIFEST.decode()}2\n"
    assert (said["outcome"], "Permission denied" in said["stderr"]) == ({"type": "exit", "exit_code": 1}, True)
    assert [(each["name"], each["version"]) for each in told] == [("make-tables", "1"), ("sqlite", "1")]
    assert bundle.of_zip(content).digest == bundle.of_zip(packed).digest


def test_a_person_types_into_a_terminal_in_a_task(api: httpx.Client) -> None:
    """One function has the task started, another one reaches it."""
    container_id = api.post("containers", json={"name": "work"}).raise_for_status().json()["id"]
    opened = api.post(f"containers/{container_id}/sessions", json={"columns": 80, "rows": 24}).raise_for_status().json()
    terminal = f"sessions/{opened['id']}"
    shown = until_shown(api, terminal, "", "$")
    api.post(f"{terminal}/input", json={"text": "echo $((6 * 7)) > answer.txt; cat answer.txt\n", "id": "line_1"}).raise_for_status()
    until_shown(api, terminal, shown, "42\n")
    resized = api.post(f"{terminal}/resize", json={"columns": 100, "rows": 30}).raise_for_status().json()
    assert (resized["columns"], resized["rows"], resized["status"]) == (100, 30, "running")
    assert api.delete(terminal).raise_for_status().json()["deleted"] is True
    (file,) = api.get(f"containers/{container_id}/files").raise_for_status().json()["data"]
    assert file["path"] == "/mnt/data/answer.txt"


def until_shown(api: httpx.Client, terminal: str, before: str, wanted: str) -> str:
    """What a terminal has shown so far, once it shows ``wanted`` after ``before``; its sandbox may still be starting."""
    deadline, shown = time.monotonic() + _RESPONSE_SECONDS_MAX, ""
    while wanted not in shown[len(before) :]:
        assert time.monotonic() < deadline, shown
        answer = api.get(f"{terminal}/output", params={"starting_after": 0, "wait_ms": 500})
        if answer.status_code != 503:
            shown = answer.raise_for_status().json()["output"].replace("\r", "")
    return shown


def test_a_document_of_a_vector_store_is_read_in_a_task(deployment: Deployment, api: httpx.Client) -> None:
    """There is no embedding model on an emulator: what is read stays to be embedded, until the store is deleted."""
    document = ("bridge.docx", a_document("The bridge of Remagen"), "application/octet-stream")
    file = api.post("files", files={"file": document}, data={"purpose": "assistants"}).raise_for_status().json()
    store = api.post("vector_stores", json={"name": "notes", "file_ids": [file["id"]]}).raise_for_status().json()
    deadline, partition = time.monotonic() + _RESPONSE_SECONDS_MAX, f"T#acme#X#{store['id']}"
    while not any(record.get("is_parsed", {}).get("BOOL") for record in records(deployment, partition)):
        assert time.monotonic() < deadline, records(deployment, partition)
        time.sleep(0.5)
    assert b"The bridge of Remagen" in stored_text(deployment, store["id"])
    assert api.delete(f"vector_stores/{store['id']}").raise_for_status().json()["deleted"] is True


def a_document(text: str) -> bytes:
    """A Word document, as far as its text is concerned: the sandbox here has no packages beside Python's own."""
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    body = f'<w:document xmlns:w="{space}"><w:body><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:body></w:document>'
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("word/document.xml", body)
    return file.getvalue()


def stored_text(deployment: Deployment, store_id: str) -> bytes:
    storage, bucket = deployment.client("s3"), deployment.outputs["BucketName"]
    (entry,) = storage.list_objects_v2(Bucket=bucket, Prefix=f"T/acme/X/{store_id}/")["Contents"]
    text: bytes = storage.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()
    return text


def test_a_foreign_response_is_not_found(api: httpx.Client) -> None:
    answer = api.get("responses/resp_" + "0" * 48)
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "invalid_request_error")


def typed(deployment: Deployment, *lines: str) -> "subprocess.CompletedProcess[str]":
    """What an operator types into a shell with credentials, in a checkout; the emulator stands for AWS there."""
    aws = {"AWS_ENDPOINT_URL": deployment.deployer.endpoint, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    programs = Path(sys.executable).parent
    return subprocess.run(
        ["bash", "-c", "\n".join(lines).replace(".venv/bin/", f"{programs}/")],
        env={"PATH": f"{programs}:{os.environ['PATH']}"} | aws,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def end_of_deploy(deployment: Deployment) -> list[str]:
    """What ``make deploy`` ends with; the emulator's address stands for that of API Gateway."""
    return closing({"moorage": deployment.outputs | {"BaseUrl": deployment.base_url}}).splitlines()


def test_what_a_deploy_ends_with_works_as_it_stands(deployment: Deployment) -> None:
    said = end_of_deploy(deployment)
    exports, key, doctor = (line for line in said if line.startswith(("  export ", "  .venv/")))
    python = [line for line in said if line.startswith(("import ", "client = ", "print("))]
    called = typed(deployment, exports, key, "python3 - <<'END'", *python, "END")
    assert "scripted" in called.stdout, called.stderr
    looked = typed(deployment, exports, key, doctor).stdout
    assert [line for line in looked.splitlines() if line.startswith("warn")] == [
        "warn  the scripted demo model answers: no other is configured"
    ]
    assert f"ok    the table {deployment.outputs['TableName']} holds" in looked
    assert "ok    'demo' answered in" in looked
    assert "ok    a sandbox started, ran a command and answered in" in looked
    # The emulator's tasks are processes of this machine: nothing closes its network to them, and the doctor sees it.
    assert "fail  a sandbox without a policy reached 127.0.0.1:" in looked


def test_the_operators_commands_work_on_it(deployment: Deployment, api: httpx.Client) -> None:
    response = in_background(api, script(shell("echo out; exit 3"), {"say": "It failed."}))
    container_id = response["output"][0]["environment"]["container_id"]
    exports = next(line for line in end_of_deploy(deployment) if line.startswith("  export "))
    shown = typed(
        deployment,
        f"{exports} MOORAGE_API_KEY={deployment.api_key}",
        "moorage models",
        "moorage containers --json",
        f"moorage containers egress {container_id}",
        f"moorage tail {response['id']}",
        "moorage keys list",
        "moorage keys revoke key_none",
    )
    lines = shown.stdout.splitlines()
    assert [line.split() for line in lines[:3]] == [["MODEL", "OWNER"], ["demo", "moorage"], ["static-256", "moorage-embeddings"]]
    assert container_id in [json.loads(line)["id"] for line in lines if line.startswith("{")]
    told = [line.partition("  ")[0] for line in lines]  # a clock stands behind what has just happened
    assert [line for line in told if line in ("out", "[exit 3]", "It failed.")] == ["out", "[exit 3]", "It failed."]
    assert any(line.split()[1:2] == ["acme"] for line in lines)
    assert (shown.returncode, shown.stderr) == (1, "moorage: There is no key 'key_none'. 'moorage keys list' shows them.\n")


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("changed")
    done = synthesise(context_of(SETTINGS | {"retention_days": 7, "log_level": "DEBUG", "warm_pool": ["1g:1"]}), output)
    assert done.returncode == 0, done.stderr[-4000:]
    return output


def test_the_stack_is_updated_in_place_and_what_runs_goes_on(deployment: Deployment, api: httpx.Client, changed: Path) -> None:
    """Each response is in the middle of a command then, which must not run again. Their executions have the functions' versions that
    they began with."""
    once = script(shell("echo once >> log; sleep 5; wc -l < log"), shell("cat log"), {"say": "ok"})
    request = {**_DEMO, "input": once, "background": True, "tools": [{"type": "shell", "environment": {"type": "container_auto"}}]}
    begun = [api.post("responses", json=request).raise_for_status().json()["id"] for _ in range(3)]
    deadline = time.monotonic() + _RESPONSE_SECONDS_MAX
    while not all(api.get(f"responses/{each}").raise_for_status().json()["output"] for each in begun):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    outputs = deployment.deployer.deploy(changed)["moorage"]
    for response in [ended(api, each) for each in begun]:
        said = [item["output"][0]["stdout"] for item in response["output"] if item["type"] == "shell_call_output"]
        assert (response["status"], [text.strip() for text in said]) == ("completed", ["1", "once"])
    functions = deployment.client("lambda").list_functions()["Functions"]
    variables = [f["Environment"]["Variables"] for f in functions if "Environment" in f]
    retention = {v["MOORAGE_RETENTION_SECONDS"] for v in variables if "MOORAGE_TABLE" in v}
    assert outputs["ApiId"] == deployment.outputs["ApiId"]
    assert retention == {str(7 * 86_400)}


def test_a_container_takes_a_task_that_waits(deployment: Deployment, api: httpx.Client) -> None:
    """With the pool that the update brought."""
    deadline = time.monotonic() + _RESPONSE_SECONDS_MAX
    while not (waiting := [slot["sandbox_id"]["S"] for slot in records(deployment, "POOL") if "S" in slot["sandbox_id"]]):
        assert time.monotonic() < deadline
        expire(deployment)  # one look starts it, and a later one finds that it answers
    response = in_background(api, script(shell("echo warm"), {"say": "ok"}))
    container_id = response["output"][0]["environment"]["container_id"]
    expire(deployment)
    running = {task["taskArn"]: task["startedBy"].split("/")[0] for task in tasks(deployment)}
    assert response["output"][1]["output"][0]["stdout"] == "warm\n"
    assert container_id not in running.values()
    assert running.pop(waiting[0]).startswith("pool_")
    assert [started_by for started_by in running.values() if started_by.startswith("pool_")] != []


def test_what_the_functions_have_asked_of_aws_is_what_their_roles_allow(
    deployment: Deployment, assembly: Path, request: pytest.FixtureRequest
) -> None:
    """With ``--record-calls`` the calls become the record that ``tests/twin/test_iam.py`` holds against every configuration."""
    deployer = deployment.deployer
    variables = {"TWIN_CALLS": str(deployment.notes), "PYTHONPATH": str(calls.RECORDING), "AWS_ENDPOINT_URL": deployer.endpoint}
    variables |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": REGION}
    places = [deployment.outputs[name] for name in ("TableName", "BucketName", "StateMachineArn")]
    beside = [sys.executable, "-m", "tests.deploy.beside", *places]
    subprocess.run(beside, env={**os.environ, **variables}, cwd=ROOT, check=True, timeout=240)
    deployed = {logical: name for logical, name in deployed_names(deployer).items() if logical.startswith("Functions")}
    names = {physical: calls.own_name(logical) for logical, physical in deployed.items()}
    names |= {name: name for name in (*names.values(), calls.PROXY)}
    asked = calls.read(deployment.notes.read_text().splitlines(), names)
    if request.config.getoption("--record-calls"):
        calls.RECORDED.write_text(json.dumps(asked, indent=1) + "\n")
    account = Account(template_of(assembly))
    assert {"FailResponse", "Responses", calls.PROXY, *calls.SOCKETS} <= asked.keys()
    assert refused(account, asked) == []


def test_the_stack_is_destroyed_with_the_tasks_that_run(deployment: Deployment, changed: Path) -> None:
    """Runs last in its file: afterwards nothing is left to call."""
    deployer, bucket = deployment.deployer, deployment.outputs["BucketName"]
    assert tasks(deployment) != []
    storage = deployment.client("s3")
    for entry in storage.list_objects_v2(Bucket=bucket).get("Contents", []):
        storage.delete_object(Bucket=bucket, Key=entry["Key"])
    deployer.destroy(changed)
    left = [s["StackName"] for s in deployment.client("cloudformation").describe_stacks()["Stacks"]]
    assert left == []
    assert deployment.client("lambda").list_functions()["Functions"] == []
