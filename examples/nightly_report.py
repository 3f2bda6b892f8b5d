"""Write a report each night: ``python nightly_report.py [TASK]``, in cron as ``0 2 * * *``.

The idempotency key names the day: a second start on the same day finds the same run. The run is in the background and outlives
this program. The budget ends a run that goes astray.
"""

import os
import sys
import time
from datetime import date
from pathlib import Path

from openai import OpenAI

TASK = "Write a report of this system's disks and memory: `df -h . && free -m`."


def main(task: str) -> None:
    client = OpenAI()
    today = date.today().isoformat()
    run = client.responses.create(
        model=os.environ.get("MOORAGE_MODEL", "demo"),
        background=True,
        instructions="Write a short report in Markdown with a title, the findings and their figures.",
        input=task,
        tools=[{"type": "shell", "environment": {"type": "container_auto"}}],
        metadata={"report": today},
        extra_headers={"Idempotency-Key": f"report-{today}"},
        extra_body={"budget": {"wall_seconds": 1800, "on_limit": "finish"}},
    )
    while run.status in ("queued", "in_progress"):
        time.sleep(1)
        run = client.responses.retrieve(run.id)
    if run.status != "completed":
        raise SystemExit(f"{run.id} ended as {run.status}: {run.error or run.incomplete_details}")
    target = Path(f"report-{today}.md")
    target.write_text(run.output_text + "\n")
    print(f"{run.id}: wrote {target}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else TASK)
