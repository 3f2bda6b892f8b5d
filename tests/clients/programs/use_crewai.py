"""crewai: a call, a stream and a crew whose agent has a tool, by Responses and by Chat Completions."""

import os
from typing import Any

os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}

from crewai import LLM, Agent, Crew, Task
from crewai.events import LLMStreamChunkEvent, crewai_event_bus
from crewai.tools import tool
from moorage_script import KEY, MODEL, URL, call, expect, say, script

pieces: list[str] = []


@tool("get_weather")
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


@crewai_event_bus.on(LLMStreamChunkEvent)
def keep(source: object, event: LLMStreamChunkEvent) -> None:
    pieces.append(event.chunk)


def model(api: str, *, stream: bool = False) -> Any:
    return LLM(model=f"openai/{MODEL}", api=api, base_url=URL, api_key=KEY, stream=stream, max_retries=0)


for api in ("responses", "completions"):
    expect(model(api).call(script(say("hello"))), "hello")
    pieces.clear()
    expect(model(api, stream=True).call(script(say("one two three"))), "one two three")
    crewai_event_bus.flush()
    expect("".join(pieces), "one two three")
    agent = Agent(role="forecaster", goal="Tell the weather.", backstory="None.", llm=model(api), tools=[get_weather])
    words = script(call("get_weather", city="Bergen"), say("It says: {{output}}"))
    crew = Crew(agents=[agent], tasks=[Task(description=words, expected_output="The weather.", agent=agent)], tracing=False)
    expect(crew.kickoff().raw, "It says: rain in Bergen")
