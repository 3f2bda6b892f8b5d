"""dspy: a signature's field filled by Chat Completions (its default) and by Responses."""

import dspy
from moorage_script import KEY, MODEL, URL, expect, say, script

FIELDS = "[[ ## answer ## ]]\nforty-two\n\n[[ ## completed ## ]]"
for kind in ("chat", "responses"):
    lm = dspy.LM(f"openai/{MODEL}", model_type=kind, api_base=URL, api_key=KEY, num_retries=0, cache=False)
    with dspy.context(lm=lm, adapter=dspy.ChatAdapter()):
        expect(dspy.Predict("question -> answer")(question=script(say(FIELDS))).answer, "forty-two")
