"""pydantic-ai: an agent with a tool and a typed answer."""

from moorage_script import KEY, MODEL, URL, call, expect, say, script
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class Town(BaseModel):
    name: str
    inhabitants: int


model = OpenAIResponsesModel(MODEL, provider=OpenAIProvider(base_url=URL, api_key=KEY))
agent = Agent(model)


@agent.tool_plain
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


words = script(call("get_weather", city="Bergen"), say("It says: {{output}}"))
expect(agent.run_sync(words).output, "It says: rain in Bergen")

typed = Agent(model, output_type=Town)
answer = script(call("final_result", name="Bergen", inhabitants=290_000))
expect(typed.run_sync(answer).output, Town(name="Bergen", inhabitants=290_000))

with agent.run_stream_sync(script(say("one two three"))) as stream:
    expect("".join(stream.stream_text(delta=True)), "one two three")
