"""Ask about a table, watch the work, and take the results home: ``python data_analyst.py [TABLE.csv] [QUESTION]``."""

import csv
import os
import random
import sys
from pathlib import Path

from openai import OpenAI

QUESTION = "Which products declined this quarter? Write a workbook and a chart."


def sample(path: Path) -> Path:
    """Made-up sales of two quarters, in which one product declines."""
    numbers = random.Random(7)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["date", "product", "region", "units", "revenue"])
        for month in range(1, 7):
            for product, growth in (("anchor", 5), ("buoy", -9), ("rope", 2)):
                units = 100 + growth * month + numbers.randrange(5)
                rows.writerow([f"2026-{month:02}-15", product, "north", units, units * 12.5])
    return path


def main(arguments: list[str]) -> None:
    path = Path(arguments[0]) if arguments else sample(Path("sales.csv"))
    client = OpenAI()
    file = client.files.create(file=path, purpose="user_data")
    stream = client.responses.create(
        model=os.environ.get("MOORAGE_MODEL", "demo"),
        instructions="You are a data analyst. Compute with programs. Name the source of each figure and the files that you wrote.",
        input=arguments[1] if len(arguments) > 1 else QUESTION,
        tools=[{"type": "shell", "environment": {"type": "container_auto", "file_ids": [file.id]}}],
        stream=True,
    )
    response = None
    for event in stream:
        if event.type == "response.output_item.done" and event.item.type == "shell_call":
            print("$", *event.item.action.commands, sep="\n  ")
        elif event.type == "response.shell_call_output_content.delta":
            print(event.delta.stdout or event.delta.stderr or "", end="")
        elif event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
        elif event.type in ("response.completed", "response.incomplete", "response.failed"):
            response = event.response
    print()
    if response is None or response.status != "completed":
        raise SystemExit(f"It ended as {response.status if response else 'cut off'}: {response.error if response else ''}")
    calls = [item for item in response.output if item.type == "shell_call"]
    for container_id in {call.environment.container_id for call in calls}:
        for stored in client.containers.files.list(container_id):
            if stored.source == "assistant":
                target = Path(stored.path).name
                client.containers.files.content.retrieve(stored.id, container_id=container_id).write_to_file(target)
                print(f"wrote {target} ({stored.bytes} bytes)")


if __name__ == "__main__":
    main(sys.argv[1:])
