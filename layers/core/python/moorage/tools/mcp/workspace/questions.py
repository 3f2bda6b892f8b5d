"""``request_user_input``: the model asks the user. The response ends with the call, which is a function call as any client knows it,
and the next request brings its output."""

from typing import Final

from moorage.tools.mcp.workspace.arguments import schema

NAME: Final = "request_user_input"
DESCRIPTION: Final = """\
Ask the user one to three short questions and wait for the answers. Only for what you can neither find out nor decide yourself."""
SCHEMA: Final = schema(
    {
        "questions": {
            "type": "array",
            "description": "Questions to show; one is best, three at most.",
            "items": schema(
                {
                    "id": {"type": "string", "description": "Names the answer (snake_case)."},
                    "header": {"type": "string", "description": "Label of a few words."},
                    "question": {"type": "string", "description": "One sentence."},
                    "options": {
                        "type": "array",
                        "description": "Two or three answers that exclude each other, the recommended one first.",
                        "items": schema({"label": {"type": "string"}, "description": {"type": "string"}}, "label", "description"),
                    },
                },
                "id",
                "header",
                "question",
            ),
        }
    },
    "questions",
)
