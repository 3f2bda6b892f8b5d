"""agno: an agent with a tool, by Responses and by Chat Completions, and a stream."""

from agno.agent import Agent
from agno.models.openai import OpenAIChat, OpenAIResponses
from moorage_script import KEY, MODEL, URL, call, expect, say, script


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


for kind in (OpenAIResponses, OpenAIChat):
    agent = Agent(model=kind(id=MODEL, base_url=URL, api_key=KEY), tools=[get_weather], telemetry=False)
    words = script(call("get_weather", city="Bergen"), say("It says: {{output}}"))
    expect(agent.run(words).content, "It says: rain in Bergen")
    pieces = [event.content or "" for event in agent.run(script(say("one two three")), stream=True) if event.event == "RunContent"]
    expect("".join(pieces), "one two three")
