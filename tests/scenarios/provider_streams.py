"""The four kinds of model server that the table of ``docs/endings.md`` is played by, each in its own words: streams that end badly."""

from collections.abc import Mapping
from json import dumps
from typing import Any, ClassVar

from tests.unit.model.encodings import aws_frame
from tests.upstream import Reply

SENTENCE = "worker 7 gave up"
"""The error message of a server."""
END_USAGE = {"input": 12, "output": 3}


class Words:
    """How a kind of model server says the parts of an answer. ``at`` counts the parts of one answer."""

    provider: str
    model_path: str = ""
    """What comes behind the server's address."""
    content_type = "text/event-stream"
    reasons: Mapping[str, str]
    """Its words for an end. A reason that is not here is written as it is."""
    bare_error: ClassVar[Any] = {"error": {"message": SENTENCE, "code": 503}}

    def begins(self) -> bytes:
        return b""

    def thinks(self, text: str) -> bytes:
        raise NotImplementedError

    def thought_ends(self, text: str) -> bytes:
        return b""

    def says(self, *texts: str, at: int = 0) -> list[bytes]:
        raise NotImplementedError

    def text_ends(self, text: str, at: int = 0) -> bytes:
        return b""

    def half_call(self, name: str, arguments: str, at: int = 0) -> bytes:
        raise NotImplementedError

    def call_ends(self, name: str, arguments: str, at: int = 0) -> bytes:
        return b""

    def error(self) -> bytes:
        raise NotImplementedError

    def ends(self, reason: str, usage: Mapping[str, Any] = END_USAGE) -> bytes:
        raise NotImplementedError

    # --- whole streams ---

    def said(self, text: str) -> Reply:
        return self.ended(*self.says(text), self.text_ends(text), self.ends("stop"))

    def cut(self, *pieces: bytes) -> Reply:
        return Reply(body=b"".join((self.begins(), *pieces)), headers=self.headers, is_cut=True)

    def ended(self, *pieces: bytes) -> Reply:
        return Reply(body=b"".join((self.begins(), *pieces)), headers=self.headers)

    def slowly(self, *tail: bytes, is_cut: bool = False) -> Reply:
        """Words that everybody has seen before it ends badly."""
        return Reply(
            pieces=(self.begins() or b": a comment\n\n", *self.says("Let me ", "look."), *tail),
            headers=self.headers,
            delay=0.3,
            is_cut=is_cut,
        )

    @property
    def headers(self) -> dict[str, str]:
        return {"content-type": self.content_type}


class ChatWords(Words):
    provider = "chat_completions"
    reasons: Mapping[str, str] = {}
    done = b"data: [DONE]\n\n"

    def thinks(self, text: str) -> bytes:
        return self._chunk({"reasoning_content": text})

    def says(self, *texts: str, at: int = 0) -> list[bytes]:
        return [self._chunk({"content": text}) for text in texts]

    def half_call(self, name: str, arguments: str, at: int = 0) -> bytes:
        function = {"name": name, "arguments": arguments}
        return self._chunk({"tool_calls": [{"index": at, "id": f"call_{at}", "type": "function", "function": function}]})

    def error(self) -> bytes:
        return b"data: " + dumps(self.bare_error).encode() + b"\n\n" + self.done

    def ends(self, reason: str, usage: Mapping[str, Any] = END_USAGE) -> bytes:
        counted = {"prompt_tokens": usage["input"], "completion_tokens": usage["output"]}
        return self._chunk({}, reason, usage=counted) + self.done

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        return f"data: {dumps({'choices': [{'index': 0, 'delta': delta, 'finish_reason': finish}], **more})}\n\n".encode()


class ResponsesWords(Words):
    provider = "openai_responses"
    reasons: Mapping[str, str] = {"length": "max_output_tokens"}

    def begins(self) -> bytes:
        return self._event("response.created", response={"id": "resp_up", "status": "in_progress"})

    def thinks(self, text: str) -> bytes:
        item = {"id": "rs_0", "type": "reasoning", "summary": []}
        return self._added(0, item) + self._event("response.reasoning_summary_text.delta", output_index=0, summary_index=0, delta=text)

    def thought_ends(self, text: str) -> bytes:
        item = {"id": "rs_0", "type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}
        return self._event("response.output_item.done", output_index=0, item=item)

    def says(self, *texts: str, at: int = 0) -> list[bytes]:
        added = self._added(at, {"id": f"msg_{at}", "type": "message", "role": "assistant", "status": "in_progress", "content": []})
        deltas = [self._event("response.output_text.delta", output_index=at, content_index=0, delta=text) for text in texts]
        return [added + deltas[0], *deltas[1:]]

    def text_ends(self, text: str, at: int = 0) -> bytes:
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"id": f"msg_{at}", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        return self._event("response.output_item.done", output_index=at, item=item)

    def half_call(self, name: str, arguments: str, at: int = 0) -> bytes:
        added = self._added(at, self._call(name, "", at) | {"status": "in_progress"})
        return added + self._event("response.function_call_arguments.delta", output_index=at, delta=arguments)

    def call_ends(self, name: str, arguments: str, at: int = 0) -> bytes:
        item = self._call(name, arguments, at) | {"status": "completed"}
        return self._event("response.output_item.done", output_index=at, item=item)

    def error(self) -> bytes:
        return self._event("response.failed", response={"status": "failed", "error": {"code": "server_error", "message": SENTENCE}})

    def ends(self, reason: str, usage: Mapping[str, Any] = END_USAGE) -> bytes:
        counted = {"input_tokens": usage["input"], "output_tokens": usage["output"]}
        is_whole = reason in ("stop", "tool_calls")
        status = "completed" if is_whole else "incomplete"
        details = None if is_whole else {"reason": self.reasons.get(reason, reason)}
        return self._event(f"response.{status}", response={"status": status, "incomplete_details": details, "usage": counted})

    def _added(self, at: int, item: dict[str, Any]) -> bytes:
        return self._event("response.output_item.added", output_index=at, item=item)

    def _call(self, name: str, arguments: str, at: int) -> dict[str, Any]:
        return {"id": f"fc_{at}", "type": "function_call", "name": name, "call_id": f"call_{at}", "arguments": arguments}

    def _event(self, name: str, **fields: Any) -> bytes:
        return f"event: {name}\ndata: {dumps({'type': name, **fields})}\n\n".encode()


class AnthropicWords(Words):
    provider = "anthropic_messages"
    reasons: Mapping[str, str] = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
    bare_error: ClassVar[Any] = {"type": "error", "error": {"type": "overloaded_error", "message": SENTENCE}}

    def begins(self) -> bytes:
        message = {"id": "msg_up", "role": "assistant", "content": [], "usage": {"input_tokens": 0, "output_tokens": 0}}
        return self._event("message_start", message=message)

    def thinks(self, text: str) -> bytes:
        return self._block(0, {"type": "thinking", "thinking": "", "signature": ""}) + self._delta(0, "thinking_delta", thinking=text)

    def thought_ends(self, text: str) -> bytes:
        return self._event("content_block_stop", index=0)

    def says(self, *texts: str, at: int = 0) -> list[bytes]:
        deltas = [self._delta(at, "text_delta", text=text) for text in texts]
        return [self._block(at, {"type": "text", "text": ""}) + deltas[0], *deltas[1:]]

    def text_ends(self, text: str, at: int = 0) -> bytes:
        return self._event("content_block_stop", index=at)

    def half_call(self, name: str, arguments: str, at: int = 0) -> bytes:
        block = {"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": {}}
        return self._block(at, block) + self._delta(at, "input_json_delta", partial_json=arguments)

    def call_ends(self, name: str, arguments: str, at: int = 0) -> bytes:
        return self._event("content_block_stop", index=at)

    def error(self) -> bytes:
        return self._event("error", error=self.bare_error["error"])

    def ends(self, reason: str, usage: Mapping[str, Any] = END_USAGE) -> bytes:
        counted = {"input_tokens": usage["input"], "output_tokens": usage["output"]}
        delta = {"stop_reason": self.reasons.get(reason, reason), "stop_sequence": None}
        return self._event("message_delta", delta=delta, usage=counted) + self._event("message_stop")

    def _block(self, at: int, block: dict[str, Any]) -> bytes:
        return self._event("content_block_start", index=at, content_block=block)

    def _delta(self, at: int, name: str, **fields: str) -> bytes:
        return self._event("content_block_delta", index=at, delta={"type": name, **fields})

    def _event(self, name: str, **fields: Any) -> bytes:
        return f"event: {name}\ndata: {dumps({'type': name, **fields})}\n\n".encode()


class ConverseWords(Words):
    provider = "bedrock_converse"
    content_type = "application/vnd.amazon.eventstream"
    reasons: Mapping[str, str] = {
        "stop": "end_turn",
        "tool_calls": "tool_use",
        "length": "max_tokens",
        "content_filter": "content_filtered",
    }
    bare_error: ClassVar[Any] = {"message": SENTENCE}

    def begins(self) -> bytes:
        return aws_frame({"role": "assistant"}, event_type="messageStart")

    def thinks(self, text: str) -> bytes:
        return self._delta(0, {"reasoningContent": {"text": text}})

    def thought_ends(self, text: str) -> bytes:
        return aws_frame({"contentBlockIndex": 0}, event_type="contentBlockStop")

    def says(self, *texts: str, at: int = 0) -> list[bytes]:
        return [self._delta(at, {"text": text}) for text in texts]

    def text_ends(self, text: str, at: int = 0) -> bytes:
        return aws_frame({"contentBlockIndex": at}, event_type="contentBlockStop")

    def half_call(self, name: str, arguments: str, at: int = 0) -> bytes:
        start = {"start": {"toolUse": {"toolUseId": f"tooluse_{at}", "name": name}}, "contentBlockIndex": at}
        return aws_frame(start, event_type="contentBlockStart") + self._delta(at, {"toolUse": {"input": arguments}})

    def call_ends(self, name: str, arguments: str, at: int = 0) -> bytes:
        return aws_frame({"contentBlockIndex": at}, event_type="contentBlockStop")

    def error(self) -> bytes:
        return aws_frame(self.bare_error, message_type="exception", exception_type="modelStreamErrorException")

    def ends(self, reason: str, usage: Mapping[str, Any] = END_USAGE) -> bytes:
        counted = {"inputTokens": usage["input"], "outputTokens": usage["output"]}
        stopped = aws_frame({"stopReason": self.reasons.get(reason, reason)}, event_type="messageStop")
        return stopped + aws_frame({"usage": counted}, event_type="metadata")

    def _delta(self, at: int, delta: dict[str, Any]) -> bytes:
        return aws_frame({"delta": delta, "contentBlockIndex": at}, event_type="contentBlockDelta")


PROVIDERS: tuple[Words, ...] = (ChatWords(), ResponsesWords(), AnthropicWords(), ConverseWords())
