"""smolagents: an agent with a tool, by Chat Completions, and by litellm's bridge to Responses."""

from moorage_script import KEY, MODEL, URL, call, expect, script
from smolagents import LiteLLMModel, OpenAIModel, ToolCallingAgent, tool


@tool
def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: Its name.
    """
    return f"rain in {city}"


task = script(call("get_weather", city="Bergen"), call("final_answer", answer="rain"))
for model in (
    OpenAIModel(MODEL, api_base=URL, api_key=KEY),
    LiteLLMModel(f"openai/responses/{MODEL}", api_base=URL, api_key=KEY),
):
    agent = ToolCallingAgent(tools=[get_weather], model=model, verbosity_level=0, max_steps=3)
    expect(agent.run(task), "rain")
