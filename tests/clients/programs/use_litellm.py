"""litellm: Responses, its bridge from chat to Responses, and Chat Completions as they are."""

import litellm
from moorage_script import KEY, MODEL, URL, call, expect, expect_in, say, script, shell

AT = {"api_base": URL, "api_key": KEY, "num_retries": 0}
HOSTED = {"type": "shell", "environment": {"type": "container_auto"}}
TOOL = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
words = script(call("get_weather", city="Bergen"), say("It says: {{output}}"))


def text_of(response: object) -> str:
    return "".join(
        part.text
        for item in response.output
        if item.type == "message"
        for part in item.content  # type: ignore[attr-defined]
    )


answered = litellm.responses(model=f"openai/{MODEL}", input=script(shell("echo hosted"), say("done")), tools=[HOSTED], **AT)
expect(text_of(answered), "done")
kinds = [event.type for event in litellm.responses(model=f"openai/{MODEL}", input="hello", stream=True, **AT)]
expect((kinds[0], kinds[-1]), ("response.created", "response.completed"))

for model in (f"openai/responses/{MODEL}", f"openai/{MODEL}"):
    tools = [{"type": "function", "function": TOOL}]
    messages = [{"role": "user", "content": words}]
    asked = litellm.completion(model=model, messages=messages, tools=tools, **AT).choices[0].message
    (wanted,) = asked.tool_calls
    messages += [asked, {"role": "tool", "tool_call_id": wanted.id, "content": "rain"}]
    expect(litellm.completion(model=model, messages=messages, tools=tools, **AT).choices[0].message.content, "It says: rain")
    pieces = litellm.completion(model=model, messages=[{"role": "user", "content": script(say("one two"))}], stream=True, **AT)
    expect_in("one two", "".join(piece.choices[0].delta.content or "" for piece in pieces))
