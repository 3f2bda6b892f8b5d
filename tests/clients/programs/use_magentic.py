"""magentic: a typed answer; it speaks Chat Completions alone."""

from magentic import OpenaiChatModel, UserMessage, chatprompt
from moorage_script import KEY, MODEL, URL, expect, say, script

model = OpenaiChatModel(MODEL, base_url=URL, api_key=KEY)


@chatprompt(UserMessage("{words}"), model=model)
def answer(words: str) -> str: ...


expect(answer(script(say("forty-two"))), "forty-two")
