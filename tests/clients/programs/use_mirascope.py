"""mirascope: a tool whose output goes back, a stream and a typed answer, by Responses and by Chat Completions."""

from mirascope import llm
from moorage_script import KEY, MODEL, URL, call, expect, say, script
from pydantic import BaseModel


class Answer(BaseModel):
    name: str


@llm.tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


llm.register_provider("openai", scope="openai/", base_url=URL, api_key=KEY)
for kind in ("responses", "completions"):
    model = llm.model(f"openai/{MODEL}:{kind}")
    asked = model.call(script(call("get_weather", city="Bergen"), say("It says: {{output}}")), tools=[get_weather])
    answered = asked.resume(asked.execute_tools())
    expect(answered.text(), "It says: rain in Bergen")
    expect("".join(model.stream(script(say("one two three"))).text_stream()).strip(), "one two three")
    expect(model.call("Say something.", format=Answer).parse().name, MODEL)
