"""llama-index: an agent with a tool and a stream by Responses, and the plain chat class."""

import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI, OpenAIResponses
from moorage_script import KEY, URL, call, expect, say, script

# Its list of models is closed; every name reaches the demo model of this stack.
AT = {"model": "gpt-4o-mini", "api_base": URL, "api_key": KEY, "max_retries": 0}


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


async def main() -> None:
    llm = OpenAIResponses(**AT)
    agent = FunctionAgent(tools=[get_weather], llm=llm, streaming=False)
    answered = await agent.run(script(call("get_weather", city="Bergen"), say("It says: {{output}}")))
    expect(str(answered), "It says: rain in Bergen")
    expect("".join(part.delta or "" for part in llm.stream_complete(script(say("one two three")))), "one two three")
    expect(str(OpenAI(**AT).complete(script(say("forty-two")))), "forty-two")


asyncio.run(main())
