"""langchain-openai: a tool's round trip and a stream."""

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from moorage_script import KEY, MODEL, URL, call, expect, say, script


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


chat = ChatOpenAI(model=MODEL, base_url=URL, api_key=KEY, use_responses_api=True, max_retries=0)
messages = [HumanMessage(script(call("get_weather", city="Bergen"), say("It says: {{output}}")))]
asked = chat.bind_tools([get_weather]).invoke(messages)
(wanted,) = asked.tool_calls
messages += [asked, ToolMessage(get_weather.invoke(wanted["args"]), tool_call_id=wanted["id"])]
expect(chat.bind_tools([get_weather]).invoke(messages).text, "It says: rain in Bergen")
expect("".join(chunk.text for chunk in chat.stream(script(say("one two three")))), "one two three")
