"""Which deployment a command asks, and what it says when that goes wrong: a sentence, exit code 1, no trace."""

import json
import os
import subprocess
import sys
import threading
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from moorage.cli.main import COMMANDS, main
from moorage.cli.target import Target, find
from moorage.command_hints import typed_here
from moorage.local.exports import write_exports
from moorage.store.sqlite_table import SqliteTable

from tests.unit.cli.deployment import MODELS, Answer, refusal, serving

KEY = "sk-moorage-test"
NOWHERE = {"MOORAGE_STATE_DIR": "/nonexistent"}


def local_state(folder: Path) -> Path:
    """What a stack that was started has left."""
    folder.mkdir(parents=True, exist_ok=True)
    client = {"OPENAI_BASE_URL": "http://127.0.0.1:8080/v1", "OPENAI_API_KEY": "sk-moorage-local", "MOORAGE_MODEL": "demo"}
    write_exports(folder / "env", client)
    return folder


AWS = {"MOORAGE_URL": "https://api.example.com/v1", "MOORAGE_API_KEY": KEY, "MOORAGE_TABLE": "t", "AWS_REGION": "eu-west-1"}
OPENAI = {"OPENAI_BASE_URL": "http://127.0.0.1:8080/v1", "OPENAI_API_KEY": KEY}


def test_the_environment_names_a_deployment_before_any_local_stack(tmp_path: Path) -> None:
    environ = AWS | OPENAI | {"MOORAGE_STATE_DIR": str(local_state(tmp_path))}
    assert find(environ) == Target("https://api.example.com/v1", KEY, "t", {"region_name": "eu-west-1"})


def test_a_key_of_openai_is_not_sent_to_another_deployment() -> None:
    assert find({"MOORAGE_URL": "https://api.example.com/v1", "OPENAI_API_KEY": "sk-proj-1"}).api_key is None


def test_the_region_is_read_from_both_variables() -> None:
    assert find({"MOORAGE_TABLE": "t", "AWS_DEFAULT_REGION": "eu-west-1"}).aws == {"region_name": "eu-west-1"}


def test_a_local_stack_comes_before_the_sdks_variables(tmp_path: Path) -> None:
    target = find(OPENAI | {"MOORAGE_STATE_DIR": str(local_state(tmp_path))})
    assert (target.url, target.api_key, target.table_name) == ("http://127.0.0.1:8080/v1", "sk-moorage-local", None)
    assert isinstance(target.table(), SqliteTable)
    elsewhere = find({"MOORAGE_STATE_DIR": str(tmp_path), "AWS_ENDPOINT_URL": "http://127.0.0.1:4566"})
    assert elsewhere.table_name == "moorage"


def test_a_command_leaves_nothing_of_the_store_open(tmp_path: Path) -> None:
    environ = {"MOORAGE_STATE_DIR": str(local_state(tmp_path))}
    commands = (["create", "--tenant", "t"], ["list"], ["revoke", "none"])
    assert [main(["keys", *arguments], environ) for arguments in commands] == [0, 0, 1]
    opened = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    assert [path for path in opened if path.startswith(str(tmp_path))] == []
    assert [thread.name for thread in threading.enumerate() if thread.name == "journal"] == []


def test_the_sdks_variables_are_enough_for_what_the_api_answers() -> None:
    assert find(NOWHERE | OPENAI) == Target("http://127.0.0.1:8080/v1", KEY, None, {"region_name": None})


def test_without_a_deployment_every_command_says_how_to_get_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert [main(command, NOWHERE) for command in (["models"], ["keys", "list"], ["tail", "resp_1"], ["containers"])] == [1, 1, 1, 1]
    assert capsys.readouterr().err.count(typed_here("Start one with 'moorage up'")) == 4


WRONG: dict[str, tuple[dict[str, str], str]] = {
    "no key": (
        {"MOORAGE_API_KEY": ""},
        "Set MOORAGE_URL (https://.../v1) and MOORAGE_API_KEY: they say where the API is and who asks.",
    ),
    "an address without a scheme": (
        {"MOORAGE_URL": "api.example.com/v1"},
        "'api.example.com/v1' is no address of an API; MOORAGE_URL takes one such as https://api.example.com/v1.",
    ),
    "a key with a stray character": (
        {"MOORAGE_API_KEY": "sk-moorage-\u00e9"},
        "MOORAGE_API_KEY holds characters that no key has. 'moorage keys create' makes a key.",
    ),
    "a key with a line break": (
        {"MOORAGE_API_KEY": "sk-moorage-1\nsk-moorage-2"},
        "MOORAGE_API_KEY holds characters that no key has. 'moorage keys create' makes a key.",
    ),
}


@pytest.mark.parametrize(("differently", "said"), WRONG.values(), ids=WRONG.keys())
def test_an_address_or_a_key_that_can_be_none_is_named(
    differently: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models"], AWS | differently) == 1
    assert capsys.readouterr().err == typed_here(f"moorage: {said}\n")


ANSWERS: dict[str, tuple[Answer, str]] = {
    "a refusal": (refusal(401, "Incorrect API key provided."), "Incorrect API key provided."),
    "a page": (
        (200, "<html>Welcome</html>"),
        "URL/models answered 200, and not as this API does. MOORAGE_URL is the address that SDKs take as base_url; it ends with /v1.",
    ),
    "a refusal of something else": (
        (403, {"message": "Missing Authentication Token"}),
        "URL/models answered 403, and not as this API does. MOORAGE_URL is the address that SDKs take as base_url; it ends with /v1.",
    ),
}


@pytest.mark.parametrize(("answer", "said"), ANSWERS.values(), ids=ANSWERS.keys())
def test_what_a_deployment_refuses_is_passed_on(answer: Answer, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"GET /v1/models": answer}) as deployment:
        assert main(["models"], deployment.environ) == 1
        assert capsys.readouterr().err == f"moorage: {said.replace('URL', deployment.url, 1)}\n"


def test_keys_need_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "list"], {"MOORAGE_URL": "https://api.example.com/v1"}) == 1
    said = "moorage: Set MOORAGE_TABLE: the keys lie in the deployment's table. 'make deployed' shows its name.\n"
    assert capsys.readouterr().err == said


def test_secrets_need_their_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    aws, state_dir = {"MOORAGE_TABLE": "t", "AWS_REGION": "eu-west-1"}, local_state(tmp_path)
    (state_dir / "egress-key").write_text("of a file that is gone")
    assert [main(["secrets", "list"], environ) for environ in (aws, {"MOORAGE_STATE_DIR": str(state_dir)})] == [1, 1]
    assert capsys.readouterr().err == (
        "moorage: Set MOORAGE_EGRESS_KEY: the key that seals secrets. 'make deployed' shows it where containers may have a network.\n"
        f"moorage: The key of this stack's secrets is missing: {state_dir}/keys.json is gone, or another stack's. Put it back from a "
        f"backup. To begin with a new one, remove {state_dir}/egress-key and what is left of keys.json: what was sealed with the old "
        "one then stays closed.\n"
    )


def test_a_key_of_secrets_is_changed_on_one_machine_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state_dir = local_state(tmp_path)
    assert main(["secrets", "rotate-key", "--json"], {"MOORAGE_STATE_DIR": str(state_dir)}) == 0
    assert json.loads(capsys.readouterr().out) == {"key": (state_dir / "egress-key").read_text()}
    assert main(["secrets", "rotate-key"], AWS) == 1
    said = "moorage: KMS makes a new key each year by itself: only a stack on one machine has a key file.\n"
    assert capsys.readouterr().err == said


def test_a_deployment_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"], {"MOORAGE_URL": "http://127.0.0.1:9/v1", "MOORAGE_API_KEY": KEY}) == 1
    assert capsys.readouterr().err == typed_here(
        "moorage: http://127.0.0.1:9/v1/models cannot be reached: [Errno 111] Connection refused. "
        "'moorage up' starts a local stack; MOORAGE_URL names another.\n"
    )


def process(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "moorage", *arguments],
        env={"PATH": os.environ["PATH"], "AWS_EC2_METADATA_DISABLED": "true", "HOME": "/nonexistent"} | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


CREDENTIALS = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
AT_AWS: dict[str, tuple[dict[str, str], str]] = {
    "no region": ({}, "No AWS region is set: set AWS_REGION, or a region in your AWS profile."),
    "no credentials": (
        {"AWS_REGION": "us-east-1"},
        "There are no AWS credentials: 'aws sso login', AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    ),
    "an unknown profile": (
        {"AWS_PROFILE": "none", "AWS_REGION": "us-east-1"},
        "AWS cannot be asked: The config profile (none) could not be found",
    ),
    "an emulator that does not run": (
        CREDENTIALS | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
        'Could not connect to the endpoint URL: "http://127.0.0.1:9/". '
        "'moorage up' starts a local stack; AWS_ENDPOINT_URL and AWS_REGION name another.",
    ),
}


@pytest.mark.parametrize(("environ", "said"), AT_AWS.values(), ids=AT_AWS.keys())
def test_what_keeps_aws_from_being_asked_is_said(environ: dict[str, str], said: str) -> None:
    done = process("keys", "list", MOORAGE_TABLE="moorage", **environ)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", typed_here(f"moorage: {said}\n"))


def test_lists_are_columns_for_people_and_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    container = {"id": "cntr_1", "status": "running", "memory_limit": "1g", "last_active_at": 0, "name": "c"}
    page = (200, {"data": [container], "has_more": False})
    with serving({"GET /v1/models": MODELS, "GET /v1/containers": page}) as deployment:
        assert main(["models"], deployment.environ) == 0
        assert capsys.readouterr().out == "MODEL  OWNER\ndemo   moorage\n"
        for command in (["containers", "--json"], ["containers", "list", "--json"], ["containers", "--json", "list"]):
            assert main(command, deployment.environ) == 0
            assert json.loads(capsys.readouterr().out) == container


def test_a_reader_who_has_enough_does_not_make_a_command_fail_loudly() -> None:
    with serving({"GET /v1/models": MODELS}) as deployment:
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [sys.executable, "-m", "moorage", "models"],
            env={"PATH": os.environ["PATH"]} | deployment.environ,
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_wrong_usage_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tail"], {})
    assert (ended.value.code, "RESPONSE_ID" in capsys.readouterr().err) == (2, True)


MISTYPED: dict[str, tuple[str, str]] = {
    "a command": ("dokter", "moorage: error: 'dokter' is no command of 'moorage'; doctor is."),
    "an action": ("keys lits", "moorage keys: error: 'lits' is no command of 'moorage keys'; list is."),
    "nothing like an action": (
        "keys frobnicate",
        "moorage keys: error: 'frobnicate' is no command of 'moorage keys'; these are: create, list, budget, revoke.",
    ),
    "an option": ("up --prot 8080", "moorage up: error: --prot is no option of 'moorage up'; --port is."),
    "an option with its value": (
        "keys list --jsn=1",
        "moorage keys list: error: --jsn is no option of 'moorage keys list'; --json is.",
    ),
    "a choice": ("usage --by frog", "moorage usage: error: argument --by: 'frog' is not known; these are: day, model, key, tool."),
    "a word too many": ("models gpt-5", "moorage models: error: 'moorage models' takes no further argument: gpt-5"),
    "no command": ("", "moorage: error: the following arguments are required: COMMAND"),
}


@pytest.mark.parametrize(("typed", "said"), MISTYPED.values(), ids=MISTYPED.keys())
def test_what_is_mistyped_is_named_by_the_command_that_does_not_know_it(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(typed.split(), {})
    command = said.partition(":")[0]
    assert (ended.value.code, capsys.readouterr().err.partition(f"{command}: error:")[2]) == (
        2,
        said.removeprefix(f"{command}: error:") + typed_here(f"\n'{command} --help' says what there is.\n"),
    )


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS), ["keys", "create"]])
def test_every_command_explains_itself(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"], {})
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {' '.join(['moorage', *command])}")


def test_a_list_of_the_commands_imports_nothing_that_they_need() -> None:
    """Half a second of imports for three lines of help is what people notice first."""
    loaded = "import sys; from moorage.cli.main import main\ntry: main(['--help'])\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, timeout=60, check=True)
    assert {"boto3", "botocore", "httpx", "pydantic", "fastapi", "openai"} & set(done.stderr.split()) == set()


IN_AN_IMPORT = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
name, *command = sys.argv[1:]

class Interrupted:
    def find_spec(self, wanted, *_):
        if wanted == name:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupted())
from moorage.cli.main import main
sys.exit(main(command))
"""


@pytest.mark.parametrize(
    ("command", "wanted"),
    [("models", "moorage.cli.models"), ("models", "httpx"), ("keys", "boto3"), ("doctor", "moorage.cli.checks"), ("up", "uvicorn")],
)
def test_ctrl_c_while_a_command_is_imported_leaves_no_trace(command: str, wanted: str) -> None:
    arguments = ["list"] if command == "keys" else []
    tried = [sys.executable, "-c", IN_AN_IMPORT, wanted, command, *arguments]
    done = subprocess.run(tried, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


TITLE, CLEAR, CLIPBOARD, TURNED = "\x1b]0;PWNED\x07", "\x9b2J", "\x1b]52;c;Y3VybCBldmls\x07", "\u202egpj.exe"
HOSTILE = TITLE + CLEAR + CLIPBOARD + TURNED


def controls(text: str) -> list[str]:
    return [letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf") and letter != "\n"]


def saying(text: str) -> dict[str, Any]:
    """A deployment whose every name and word is this."""
    error = {"error": {"message": text, "type": "x", "param": None, "code": None}}
    container = {"id": text, "status": text, "memory_limit": text, "last_active_at": 0, "name": text}
    skill = {"id": text, "name": text, "description": text, "default_version": text, "latest_version": text, "created_at": 0}
    tool = {"type": "shell", "environment": {"type": "container_reference", "container_id": text}}
    wait = {"kind": text, "since": 0, "detail": text}
    row = {"id": text, "status": text, "model": text, "created_at": 0, "ended_at": None, "usage": None, "cost_usd": None}
    step = {"step": 0, "call_id": text, "type": text, "status": text, "queue_ms": None, "started_at": None, "first_output_at": None}
    step |= {"ended_at": None, "waiting_for": None, "attempts": {"count": 1, "why": text}, "usage": None, "cost_usd": None}
    file = {"id": text, "bytes": 1, "created_at": 0, "purpose": text, "filename": text}
    refused = {"created_at": 0, "decision": text, "host": text, "port": 1, "reason": text, "count": 1, "message": text}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": text, "status": "queued", "model": text, "tools": [tool]}},
        {"type": "response.output_text.delta", "output_index": 0, "delta": text},
        {"type": "response.output_item.added", "output_index": 1, "item": {"type": "function_call", "name": text}},
        {"type": "response.shell_call_command.done", "output_index": 2, "command_index": 0, "command": text},
        {"type": "response.shell_call_output_content.delta", "output_index": 3, "command_index": 0, "delta": {"stdout": text}},
        {"type": "error", "error": {"code": text, "message": text}},
        {"type": "response.failed", "response": {"status": "failed", "error": error["error"], "usage": None}},
    ]
    numbered = [one | {"sequence_number": number} for number, one in enumerate(events)]
    return {
        "GET /v1/models": (200, {"data": [{"id": text, "owned_by": text}]}),
        "GET /v1/containers": (200, {"data": [container], "has_more": False}),
        "GET /v1/containers/cntr_1/egress": (200, {"data": [refused], "has_more": False}),
        "GET /v1/responses/resp_1": (200, numbered),
        "GET /v1/responses/resp_2": (404, error),
        "GET /v1/responses": (200, {"data": [row | {"error": error["error"], "waiting_for": wait}], "has_more": False}),
        "GET /v1/responses/resp_3": (200, row | {"error": {"code": text, "message": text}}),
        "GET /v1/responses/resp_3/steps": (200, {"data": [step, step | {"waiting_for": wait}], "has_more": False}),
        "GET /v1/usage": (200, {"data": [{"id": text, "by_status": {}, "tool_calls": text}]}),
        "GET /v1/files": (200, {"data": [file], "has_more": False}),
        "GET /v1/containers/cntr_1/tree": (200, {"data": [{"type": "file", "bytes": 1, "path": text}]}),
        "GET /v1/skills": (200, {"data": [skill], "has_more": False}),
        "GET /v1/skills/skill_1": (200, skill | {"id": "skill_1"}),
        "GET /v1/skills/skill_1/versions": (200, {"data": [skill | {"version": text}], "has_more": False}),
        "POST /v1/responses": (200, numbered),
        "POST /v1/responses/resp_1/cancel": (400, error),
        "POST /v1/responses/resp_1/pause": (400, error),
        "POST /v1/containers": (500, error),
    }


SHOWN = [["models"], ["containers"], ["containers", "egress", "cntr_1"], ["tail", "resp_1"], ["tail", "resp_2"], ["doctor"]]
SHOWN += [["ls"], ["show", "resp_3"], ["usage"], ["files"], ["containers", "tree", "cntr_1"], ["skills"], ["skills", "show", "skill_1"]]
SAID = [["stop", "resp_1"], ["pause", "resp_1"]]
"""They have nothing to list."""


@pytest.mark.parametrize("command", [*SHOWN, *SAID, *([*command, "--json"] for command in SHOWN)], ids=" ".join)
def test_nothing_that_others_say_reaches_a_terminal_as_control_codes(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with serving(saying(HOSTILE)) as deployment:
        main(command, deployment.environ)
    out, errors = capsys.readouterr()
    assert "PWNED" in out + errors
    assert controls(out + errors) == []


def test_a_name_with_lines_keeps_to_its_column(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(saying("a\nb\tc")) as deployment:
        main(["models"], deployment.environ)
    assert capsys.readouterr().out.splitlines() == ["MODEL    OWNER", r"a\nb\tc  a\nb\tc"]


def test_json_says_the_same_without_control_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(saying(HOSTILE)) as deployment:
        main(["models", "--json"], deployment.environ)
    assert json.loads(capsys.readouterr().out) == {"id": HOSTILE, "owned_by": HOSTILE}
