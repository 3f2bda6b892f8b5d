"""The transcript that a summary is made from."""

from typing import Any

from moorage.loop.compact import transcript


def told(*items: dict[str, Any], tokens_max: int = 1_000) -> str:
    return transcript(items, lambda item: "earlier notes", tokens_max=tokens_max)


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def test_messages_calls_and_outputs_are_told_in_order() -> None:
    items = [
        {"type": "compaction", "encrypted_content": "x"},
        said("hello"),
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "secret"},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "data:..."}]},
    ]
    assert told(*items).split("\n\n") == [
        "earlier notes",
        "user: hello",
        'reasoning: {"summary":[{"text":"Hm."}]}',
        'function_call: {"call_id":"c","name":"f","arguments":"{}"}',
        'function_call_output: {"call_id":"c","output":"done"}',
        "user: [input_image]",
    ]


def test_what_is_too_long_loses_its_middle() -> None:
    text = told(said("a" * 500), said("b" * 500), tokens_max=50)
    assert text.startswith("user: aaa")
    assert text.endswith("bbb")
    assert "[814 characters left out]" in text
    assert len(text) < 300
