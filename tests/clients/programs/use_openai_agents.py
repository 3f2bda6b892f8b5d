"""openai-agents: a function tool, the hosted shell, and a shell that runs here; plain, streamed and over WebSocket."""

import asyncio
import subprocess

from agents import (
    Agent,
    ModelSettings,
    OpenAIResponsesModel,
    Runner,
    ShellTool,
    function_tool,
    responses_websocket_session,
    set_tracing_disabled,
)
from agents.tool import ShellCallOutcome, ShellCommandOutput, ShellCommandRequest, ShellResult
from moorage_script import MODEL, call, expect, say, script, shell
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

    here = ShellTool(executor=run_here)
    result = await Runner.run(agent(here), script(shell("echo $((6 * 7))"), say("It says: {{output}}")))
    expect("42" in result.final_output, True)


asyncio.run(main())
