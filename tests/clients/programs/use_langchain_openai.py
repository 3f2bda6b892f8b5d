"""langchain-openai: a tool's round trip, a stream, and a remote server: called, allowed and refused."""

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from moorage_script import KEY, MODEL, URL, call, expect, expect_in, say, script


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

# The operator's server of spare parts.
free = chat.bind_tools([{"type": "mcp", "server_label": "depot", "require_approval": "never"}])
find = script(call("depot__find_part", sku="A-7"), say("It says: {{output}}"))
expect(free.invoke(find).text, "It says: 14 of A-7 in stock")
expect("".join(chunk.text for chunk in free.stream(find)), "It says: 14 of A-7 in stock")
gated = chat.bind_tools([{"type": "mcp", "server_label": "depot", "require_approval": "always"}])
for approve, answer in ((True, "ordered 2 of A-7"), (False, "did not allow")):
    held = gated.invoke(script(call("depot__order_part", sku="A-7", count=2), say("It says: {{output}}")))
    (request,) = [block for block in held.content if block["type"] == "mcp_approval_request"]
    word = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve}
    said = {"role": "user", "content": [word]}
    expect_in(answer, gated.invoke([said], previous_response_id=held.response_metadata["id"]).text)

expect("".join(chunk.text for chunk in chat.stream(script(say("one two three")))), "one two three")
