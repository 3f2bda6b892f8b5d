"""strands-agents: an agent with a tool, by Chat Completions (its default) and by Responses."""

from moorage_script import KEY, MODEL, URL, call, expect, say, script
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.models.openai_responses import OpenAIResponsesModel


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


for kind in (OpenAIModel, OpenAIResponsesModel):
    model = kind(client_args={"base_url": URL, "api_key": KEY, "max_retries": 0}, model_id=MODEL)
    agent = Agent(model=model, tools=[get_weather], callback_handler=None)
    answered = agent(script(call("get_weather", city="Bergen"), say("It says: {{output}}")))
    expect(str(answered).strip(), "It says: rain in Bergen")
