"""Microsoft's Agent Framework: an agent with a tool and with hosted ones, by Responses; a session; the same tool by chat."""

import asyncio

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from moorage_script import KEY, MODEL, URL, call, expect, expect_in, say, script, shell


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


async def main() -> None:
    for kind in (OpenAIChatClient, OpenAIChatCompletionClient):
        agent = Agent(kind(MODEL, api_key=KEY, base_url=URL), tools=[get_weather])
        answer = await agent.run(script(call("get_weather", city="Bergen"), say("It says: {{output}}")))
        expect(answer.text, "It says: rain in Bergen")
    client = OpenAIChatClient(MODEL, api_key=KEY, base_url=URL)
    hosted = Agent(client, tools=[client.get_code_interpreter_tool()])
    expect_in("42", (await hosted.run(script({"python": "6 * 7"}, say("It says: {{output}}")))).text)
    commands = Agent(client, tools=[client.get_shell_tool()])
    session = commands.create_session()
    expect_in("kept", (await commands.run(script(shell("echo kept > a; cat a"), say("{{output}}")), session=session)).text)
    expect_in("kept", (await commands.run(script(shell("cat a"), say("{{output}}")), session=session)).text)


asyncio.run(main())
