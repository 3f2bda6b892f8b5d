"""outlines: a typed answer; it speaks Chat Completions alone."""

import json

import outlines
from moorage_script import KEY, MODEL, URL, expect, say, script
from openai import OpenAI
from pydantic import BaseModel


class Boat(BaseModel):
    name: str
    masts: int


model = outlines.from_openai(OpenAI(base_url=URL, api_key=KEY, max_retries=0), MODEL)
expect(model(script(say("forty-two"))), "forty-two")
expect(json.loads(model("A boat, please.", Boat)), {"name": MODEL, "masts": 0})
