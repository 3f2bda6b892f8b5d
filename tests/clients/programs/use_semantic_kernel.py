"""semantic-kernel: an agent with a plugin in its second turn, and a stream, by Responses and by Chat Completions."""

import asyncio

from moorage_script import KEY, MODEL, URL, call, expect, say, script
from openai import AsyncOpenAI
from semantic_kernel.agents import Agent, ChatCompletionAgent, OpenAIResponsesAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function


class Weather:
    @kernel_function
    def get_weather(self, city: str) -> str:
        """The weather in a city."""
        return f"rain in {city}"


async def work(agent: Agent) -> None:
    """The script comes in a turn of its own: with an output, stored turns send their question once more."""
    plan = script(say("hello"), call("Weather-get_weather", city="Bergen"), say("It says: {{output}}"))
    first = await agent.get_response(messages=plan)
    expect(str(first), "hello")
    second = await agent.get_response(messages="How is the weather?", thread=first.thread)
    expect(str(second), "It says: rain in Bergen")
    pieces = [str(piece.message) async for piece in agent.invoke_stream(messages=script(say("one two three")))]
    expect("".join(pieces), "one two three")


async def main() -> None:
    async with AsyncOpenAI(base_url=URL, api_key=KEY, max_retries=0) as client:
        service = OpenAIChatCompletion(ai_model_id=MODEL, async_client=client)
        await work(OpenAIResponsesAgent(ai_model_id=MODEL, client=client, name="agent", plugins=[Weather()]))
        await work(OpenAIResponsesAgent(ai_model_id=MODEL, client=client, name="agent", plugins=[Weather()], store_enabled=False))
        await work(ChatCompletionAgent(service=service, name="agent", plugins=[Weather()]))


asyncio.run(main())
