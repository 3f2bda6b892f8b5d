"""openai: the whole life of a response, a file made in a container, and many answers at once."""

import asyncio
import time

import openai
from moorage_script import MODEL, call, expect, expect_in, say, script, shell
from pydantic import BaseModel

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


class Town(BaseModel):
    name: str
    inhabitants: int


def main() -> None:
    client = openai.OpenAI(max_retries=0)
    answered = client.responses.create(model=MODEL, input=script(say("forty-two"), say("as before")))
    expect(answered.output_text, "forty-two")
    expect(client.responses.retrieve(answered.id).output_text, "forty-two")
    expect(client.responses.create(model=MODEL, input="and?", previous_response_id=answered.id).output_text, "as before")
    with client.responses.stream(model=MODEL, input=script(say("one two three"))) as stream:
        expect("".join(event.delta for event in stream if event.type == "response.output_text.delta"), "one two three")
    parsed = client.responses.parse(model=MODEL, input="a town", text_format=Town)
    expect(type(parsed.output_parsed), Town)
    use_function(client)
    use_container(client)
    use_background(client)
    use_conversation(client)
    use_socket(client)
    expect(client.responses.input_tokens.count(model=MODEL, input="hello").object, "response.input_tokens")
    client.responses.delete(answered.id)
    asyncio.run(use_async())


def use_function(client: openai.OpenAI) -> None:
    words = script(call("get_weather", city="Bergen"), say("It says: {{output}}"))
    first = client.responses.create(model=MODEL, input=words, tools=[WEATHER])
    (asked,) = [item for item in first.output if item.type == "function_call"]
    second = client.responses.create(
        model=MODEL,
        previous_response_id=first.id,
        tools=[WEATHER],
        input=[{"type": "function_call_output", "call_id": asked.call_id, "output": "rain"}],
    )
    expect(second.output_text, "It says: rain")


def use_container(client: openai.OpenAI) -> None:
    words = script(shell("seq 3 > /mnt/data/numbers.txt && wc -l < /mnt/data/numbers.txt"), say("Made /mnt/data/numbers.txt"))
    made = client.responses.create(model=MODEL, input=words, tools=[{"type": "shell", "environment": {"type": "container_auto"}}])
    (ran,) = [item for item in made.output if item.type == "shell_call_output"]
    expect(ran.output[0].stdout.strip(), "3")
    (container_id,) = {item.environment.container_id for item in made.output if item.type == "shell_call"}
    (file,) = list(client.containers.files.list(container_id))
    expect(client.containers.files.content.retrieve(file.id, container_id=container_id).read(), b"1\n2\n3\n")


def use_background(client: openai.OpenAI) -> None:
    queued = client.responses.create(model=MODEL, input=script(say("later")), background=True)
    deadline = time.monotonic() + 30
    while queued.status in ("queued", "in_progress") and time.monotonic() < deadline:
        queued = client.responses.retrieve(queued.id)
    expect(queued.output_text, "later")


def use_conversation(client: openai.OpenAI) -> None:
    conversation = client.conversations.create()
    client.responses.create(model=MODEL, input="hello", conversation=conversation.id)
    expect([item.role for item in client.conversations.items.list(conversation.id, order="asc")], ["user", "assistant"])


def use_socket(client: openai.OpenAI) -> None:
    with client.responses.connect() as connection:
        connection.response.create(model=MODEL, input=script(say("by socket")))
        for event in connection:
            if event.type == "response.completed":
                expect_in("by socket", event.response.output_text)
                return


async def use_async() -> None:
    async with openai.AsyncOpenAI(max_retries=0) as client:

        async def ask(number: int) -> str:
            async with client.responses.stream(model=MODEL, input=script(say(f"answer {number}"))) as stream:
                return (await stream.get_final_response()).output_text

        expect(await asyncio.gather(*map(ask, range(8))), [f"answer {number}" for number in range(8)])


main()
