"""haystack-ai: an agent with a tool, by Responses and by Chat Completions."""

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack.utils import Secret
from moorage_script import KEY, MODEL, URL, call, expect, say, script


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


for kind in (OpenAIResponsesChatGenerator, OpenAIChatGenerator):
    generator = kind(model=MODEL, api_base_url=URL, api_key=Secret.from_token(KEY), max_retries=0)
    agent = Agent(chat_generator=generator, tools=[get_weather])
    agent.warm_up()
    words = script(call("get_weather", city="Bergen"), say("It says: {{output}}"))
    expect(agent.run(messages=[ChatMessage.from_user(words)])["last_message"].text, "It says: rain in Bergen")
