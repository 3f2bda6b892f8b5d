"""``update_plan``: the model's own list of its next steps, kept as the arguments of its calls, for clients and operators."""

from typing import Any, Final

from moorage.tools.mcp.workspace.arguments import schema
from moorage.tools.mcp.workspace.results import WorkspaceResult, failed
from moorage.tools.run import Run

DESCRIPTION: Final = "Write down the plan of a longer task, or how far it has come. At most one step is in_progress."
SCHEMA: Final = schema(
    {
        "explanation": {"type": "string", "description": "Why the plan changes."},
        "plan": {
            "type": "array",
            "description": "All steps, in order.",
            "items": schema(
                {"step": {"type": "string"}, "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]}},
                "step",
                "status",
            ),
        },
    },
    "plan",
)

_MARKS: Final = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


async def update_plan(run: Run, given: dict[str, Any]) -> WorkspaceResult:
    if sum(step["status"] == "in_progress" for step in given["plan"]) > 1:
        return failed("At most one step can be in_progress at a time.")
    return WorkspaceResult("Plan updated")


def lines(given: Any) -> list[str]:
    """The plan for an operator; empty if it is none."""
    steps = given.get("plan") if isinstance(given, dict) else None
    if not isinstance(steps, list):
        return []
    return [f"{_MARKS.get(str(step.get('status')), '[?]')} {step.get('step')}" for step in steps if isinstance(step, dict)]
