"""Compare models at one task: ``python evaluate_models.py [MODEL ...]``, by default all that answer.

Each model counts the prime numbers below 1,000 with a shell. The check looks for 168 in its answer.
"""

import sys
import time

from openai import OpenAI, OpenAIError

COMMAND = "python3 -c 'print(sum(all(n % d for d in range(2, n)) for n in range(2, 1000)))'"
TASK = f"How many prime numbers are below 1,000? Compute it, for example with `{COMMAND}`, and answer with the number."

SHELL = {"type": "shell", "environment": {"type": "container_auto"}}


def is_right(answer: str) -> bool:
    return "168" in answer


def evaluate(client: OpenAI, model: str) -> list[str]:
    """The cells of one row."""
    begun = time.monotonic()
    try:
        response = client.responses.create(model=model, input=TASK, tools=[SHELL])
    except OpenAIError as error:
        return [model, "error", "", "", str(error).splitlines()[0][:60]]
    calls = sum(item.type == "shell_call" for item in response.output)
    verdict = "right" if response.status == "completed" and is_right(response.output_text) else "wrong"
    tokens = response.usage.total_tokens if response.usage else 0
    return [model, verdict, f"{time.monotonic() - begun:.1f}", str(tokens), f"{calls} calls"]


def main(models: list[str]) -> None:
    client = OpenAI()
    for row in [["model", "result", "seconds", "tokens", "note"], *(evaluate(client, model) for model in models)]:
        print(" | ".join(f"{cell:10}" for cell in row).rstrip())


if __name__ == "__main__":
    main(sys.argv[1:] or [model.id for model in OpenAI().models.list() if model.owned_by != "moorage-embeddings"])
