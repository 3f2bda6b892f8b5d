"""autogen: AgentChat's usual client, which speaks Chat Completions, with a tool."""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from moorage_script import KEY, MODEL, URL, call, expect, say, script


async def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


async def main() -> None:
    info = {"vision": False, "function_calling": True, "json_output": False, "family": "unknown", "structured_output": False}
    client = OpenAIChatCompletionClient(model=MODEL, base_url=URL, api_key=KEY, max_retries=0, model_info=info)
    agent = AssistantAgent("agent", client, tools=[get_weather], reflect_on_tool_use=True)
    result = await agent.run(task=script(call("get_weather", city="Bergen"), say("It says: {{output}}")))
    expect(result.messages[-1].content, "It says: rain in Bergen")
    await client.close()


asyncio.run(main())
