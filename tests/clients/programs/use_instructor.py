"""instructor: a typed answer, by Responses and by Chat Completions, whole and in parts."""

import instructor
from moorage_script import KEY, MODEL, URL, call, expect, script
from openai import OpenAI
from pydantic import BaseModel


class Town(BaseModel):
    name: str
    inhabitants: int


BERGEN = Town(name="Bergen", inhabitants=290_000)
asked = script(call("Town", **BERGEN.model_dump()))

for mode in (instructor.Mode.RESPONSES_TOOLS, instructor.Mode.TOOLS):
    client = instructor.from_openai(OpenAI(base_url=URL, api_key=KEY, max_retries=0), mode=mode)
    town = client.chat.completions.create(model=MODEL, response_model=Town, messages=[{"role": "user", "content": asked}])
    expect(town.model_dump(), BERGEN.model_dump())

parts = client.chat.completions.create_partial(model=MODEL, response_model=Town, messages=[{"role": "user", "content": asked}])
expect([*parts][-1].model_dump(), BERGEN.model_dump())
