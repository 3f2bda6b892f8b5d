"""openai-agents: a function tool, the hosted shell, and a shell that runs here; plain, streamed and over WebSocket."""

import asyncio
import base64
import io
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from agents import (
    Agent,
    ApplyPatchTool,
    HostedMCPTool,
    ModelSettings,
    OpenAIResponsesCompactionSession,
    OpenAIResponsesModel,
    Runner,
    ShellTool,
    ShellToolInlineSkill,
    ShellToolSkillReference,
    SQLiteSession,
    apply_diff,
    function_tool,
    responses_websocket_session,
    set_tracing_disabled,
)
from agents.editor import ApplyPatchOperation, ApplyPatchResult
from agents.tool import ShellCallOutcome, ShellCommandOutput, ShellCommandRequest, ShellResult
from moorage_script import MODEL, call, expect, expect_in, say, script, shell
from openai import AsyncOpenAI


@function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


async def run_here(request: ShellCommandRequest) -> ShellResult:
    outputs = []
    for command in request.data.action.commands:
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=30)  # the task of this tool
        outcome = ShellCallOutcome(type="exit", exit_code=done.returncode)
        outputs.append(ShellCommandOutput(command=command, stdout=done.stdout, stderr=done.stderr, outcome=outcome))
    return ShellResult(output=outputs)


class Editor:
    """The files that ``apply_patch`` may change."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def create_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        (self._root / operation.path).write_text(apply_diff("", operation.diff or "", mode="create"))
        return ApplyPatchResult(output="created")

    def update_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        path = self._root / operation.path
        path.write_text(apply_diff(path.read_text(), operation.diff or ""))
        return ApplyPatchResult(output="updated")

    def delete_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        (self._root / operation.path).unlink()
        return ApplyPatchResult(output="deleted")


MANIFEST = "---\nname: csv-workbench\ndescription: Sums up CSV files.\n---\nRun `python3 sums.py FILE`.\n"
SUMS = "import csv, sys\nprint(sum(int(row['amount']) for row in csv.DictReader(open(sys.argv[1]))))\n"


def bundle() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression=zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("csv-workbench/SKILL.md", MANIFEST)
        archive.writestr("csv-workbench/sums.py", SUMS)
    return packed.getvalue()


async def with_skills(agent: Callable[..., Agent], client: AsyncOpenAI) -> None:
    """What the SDK's examples ``container_shell_inline_skill`` and ``container_shell_skill_reference`` do."""
    source = {"type": "base64", "media_type": "application/zip", "data": base64.b64encode(bundle()).decode()}
    inline = ShellToolInlineSkill(type="inline", name="csv-workbench", description="Sums up CSV files.", source=source)
    made = await client.skills.create(files=("csv-workbench.zip", bundle()))
    reference = ShellToolSkillReference(type="skill_reference", skill_id=made.id, version="1")
    sums = "printf 'amount\n40\n2\n' > /mnt/data/orders.csv; python3 /home/oai/skills/csv-workbench-*/sums.py /mnt/data/orders.csv"
    for skill in (inline, reference):
        environment = {"type": "container_auto", "network_policy": {"type": "disabled"}, "skills": [skill]}
        result = await Runner.run(agent(ShellTool(environment=environment)), script(shell(sums), say("It says: {{output}}")))
        expect_in("42", result.final_output)
        calls = [item for response in result.raw_responses for item in response.output if item.type == "shell_call"]
        reuse = {"type": "container_reference", "container_id": calls[0].environment.container_id}
        result = await Runner.run(agent(ShellTool(environment=reuse)), script(shell("ls /mnt/data"), say("It says: {{output}}")))
        expect_in("orders.csv", result.final_output)


async def remotely(agent: Callable[..., Agent]) -> None:
    """The operator's server of spare parts: calls that need nobody's word, and calls that are allowed or not."""
    free = HostedMCPTool(tool_config={"type": "mcp", "server_label": "depot", "require_approval": "never"})
    find = script(call("depot__find_part", sku="A-7"), say("It says: {{output}}"))
    expect((await Runner.run(agent(free), find)).final_output, "It says: 14 of A-7 in stock")
    order = script(call("depot__order_part", sku="A-7", count=2), say("It says: {{output}}"))
    for word, answer in ((True, "ordered 2 of A-7"), (False, "Too dear.")):
        asked = HostedMCPTool(
            tool_config={"type": "mcp", "server_label": "depot", "require_approval": "always"},
            on_approval_request=lambda request, word=word: {"approve": word, "reason": "Too dear."},
        )
        expect_in(answer, (await Runner.run(agent(asked), order)).final_output)


async def main() -> None:
    set_tracing_disabled(True)
    model = OpenAIResponsesModel(MODEL, AsyncOpenAI(max_retries=0))

    def agent(*tools: object, **settings: object) -> Agent:
        return Agent("tester", instructions="Do it.", model=model, tools=list(tools), model_settings=ModelSettings(**settings))

    words = script(call("get_weather", city="Bergen"), say("It says: {{output}}"))
    expect((await Runner.run(agent(get_weather), words)).final_output, "It says: rain in Bergen")
    expect((await Runner.run(agent(get_weather, store=False), words)).final_output, "It says: rain in Bergen")

    streamed = Runner.run_streamed(agent(get_weather), words)
    kinds = {event.name async for event in streamed.stream_events() if event.type == "run_item_stream_event"}
    expect({"tool_called", "tool_output", "message_output_created"} <= kinds, True)
    expect(streamed.final_output, "It says: rain in Bergen")

    async with responses_websocket_session() as session:
        by_name = Agent("tester", instructions="Do it.", model=MODEL, tools=[get_weather])
        expect((await session.run(by_name, words)).final_output, "It says: rain in Bergen")

    hosted = ShellTool(environment={"type": "container_auto"})
    result = await Runner.run(agent(hosted), script(shell("echo hosted"), say("It says: {{output}}")))
    expect("hosted" in result.final_output, True)
    expect([item.type for item in result.new_items].count("tool_call_output_item"), 1)

    fenced = ShellTool(environment={"type": "container_auto", "network_policy": {"type": "disabled"}})
    result = await Runner.run(agent(fenced), script(shell("echo kept > note.txt"), say("made")))
    calls = [item for response in result.raw_responses for item in response.output if item.type == "shell_call"]
    again = ShellTool(environment={"type": "container_reference", "container_id": calls[0].environment.container_id})
    result = await Runner.run(agent(again), script(shell("cat note.txt"), say("It says: {{output}}")))
    expect_in("kept", result.final_output)

    await with_skills(agent, model._client)
    await remotely(agent)

    here = ShellTool(executor=run_here)
    result = await Runner.run(agent(here), script(shell("echo $((6 * 7))"), say("It says: {{output}}")))
    expect("42" in result.final_output, True)

    with tempfile.TemporaryDirectory() as folder:
        editor = Editor(Path(folder))
        operation = {"type": "create_file", "path": "notes.txt", "diff": "+hello\n"}
        await Runner.run(agent(ApplyPatchTool(editor=editor)), script(call("apply_patch", **operation), say("done")))
        expect((Path(folder) / "notes.txt").read_text().strip(), "hello")

    compacting = OpenAIResponsesCompactionSession(
        session_id="s",
        underlying_session=SQLiteSession("s"),
        client=model._client,
        model="gpt-5.5",
        should_trigger_compaction=lambda context: len(context["compaction_candidate_items"]) >= 2,
    )
    for number in range(4):
        result = await Runner.run(agent(), script(say(f"answer {number}")), session=compacting)
        expect(result.final_output, f"answer {number}")
    expect("compaction" in {item.get("type") for item in await compacting.get_items()}, True)


asyncio.run(main())
