"""Items as turns of blocks, for upstreams whose messages alternate between user and assistant (Anthropic, Converse).

The first turn is the user's. Consecutive items of one side share a turn, and a turn's tool results stand before its other blocks, as
both upstreams demand. Blocks are only ever added at the end of the last turn, so what was rendered for an earlier step stays as it
was.
"""

from dataclasses import field
from typing import Any, Final, Literal

import orjson

from moorage.dataclass import dataclass
from moorage.model import content, reasoning
from moorage.wire.types import Item, Tool

THINKING: Final = "thinking"
"""The kind of packed reasoning: blocks of Claude's, whose signatures hold on Anthropic's API and on Bedrock alike."""


@dataclass(frozen=True, slots=True)
class TextContent:
    text: str


@dataclass(frozen=True, slots=True)
class ImageContent:
    url: str


@dataclass(frozen=True, slots=True)
class FileContent:
    name: str
    source: str
    """A data URL, bare base64 or a URL."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    call_id: str
    name: str
    input: dict[str, Any]
    toolset: str = ""
    """The upstream's own family of tools that it belongs to; empty for a function."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    call_id: str
    parts: tuple[TextContent | ImageContent | FileContent, ...]


@dataclass(frozen=True, slots=True)
class ReasoningContent:
    block: dict[str, Any]
    """As Anthropic writes it: ``thinking`` with ``signature``, or ``redacted_thinking`` with ``data``."""


Block = TextContent | ImageContent | FileContent | ToolUse | ToolResult | ReasoningContent


@dataclass(slots=True)
class ConversationTurn:
    role: Literal["user", "assistant"]
    blocks: list[Block] = field(default_factory=list)


@dataclass(slots=True)
class ConversationTurns:
    system: list[str] = field(default_factory=list)
    """Instructions, and the developer's messages before the first turn."""
    turns: list[ConversationTurn] = field(default_factory=list)

    @classmethod
    def of(cls, instructions: str | None, items: tuple[Item, ...]) -> "ConversationTurns":
        turns = cls([instructions] if instructions else [])
        for item in items:
            turns._add(item)
        if not turns.turns or turns.turns[0].role == "assistant":
            turns.turns.insert(0, ConversationTurn("user", [TextContent("(The conversation begins.)")]))
        return turns

    def stand_ins(self) -> list[Tool]:
        """Tools that earlier calls used, for a request that offers none: a conversation with calls has to name some."""
        names = dict.fromkeys(
            block.name for turn in self.turns for block in turn.blocks if isinstance(block, ToolUse) and not block.toolset
        )
        return [{"type": "function", "name": name} for name in names]

    @property
    def lacks_thought(self) -> bool:
        """A tool call of the turn that is going on was made without thinking: Claude then refuses to think on."""
        last = self.turns[-1] if self.turns else None
        if last is None or last.role != "user" or not isinstance(last.blocks[0], ToolResult) or len(self.turns) < 2:
            return False
        return not isinstance(self.turns[-2].blocks[0], ReasoningContent)

    def _add(self, item: Item) -> None:
        match item.get("type", "message"):
            case "message":
                self._message(item)
            case "function_call":
                self._append(
                    "assistant", ToolUse(item["call_id"], item["name"], _object(item.get("arguments")), item.get("toolset", ""))
                )
            case "function_call_output":
                self._result(ToolResult(item["call_id"], tuple(_parts(item.get("output")))))
            case "reasoning":
                thought = reasoning.unpack(THINKING, item)
                if thought is not None:
                    self._append("assistant", ReasoningContent(thought))

    def _message(self, item: Item) -> None:
        role = content.role_of(item)
        parts = _parts(item.get("content"))
        if role == "assistant":
            self._append("assistant", *(part for part in parts if isinstance(part, TextContent)))
        elif role in ("system", "developer"):
            self._developer("\n\n".join(part.text for part in parts if isinstance(part, TextContent)))
        else:
            self._append("user", *parts)

    def _developer(self, text: str) -> None:
        """Later messages of the developer keep their place; the upstream has no role for them there."""
        if not self.turns:
            self.system.append(text)
        else:
            self._append("user", TextContent(f"<developer_message>\n{text}\n</developer_message>"))

    def _append(self, role: Literal["user", "assistant"], *blocks: Block) -> None:
        if not blocks:
            return
        if not self.turns or self.turns[-1].role != role:
            self.turns.append(ConversationTurn(role))
        self.turns[-1].blocks.extend(blocks)

    def _result(self, result: ToolResult) -> None:
        if not self.turns or self.turns[-1].role != "user":
            self.turns.append(ConversationTurn("user"))
        blocks = self.turns[-1].blocks
        results = sum(isinstance(block, ToolResult) for block in blocks)
        blocks.insert(results, result)


def _parts(value: Any) -> list[TextContent | ImageContent | FileContent]:
    """Blocks of content; text without a visible character is left out, because upstreams refuse it."""
    blocks: list[TextContent | ImageContent | FileContent] = []
    for part in content.parts_of(value):
        text, url, file = content.text_of(part), content.image_url_of(part), content.file_of(part)
        if text is not None:
            blocks += [TextContent(text)] if text.strip() else []
        elif url:
            blocks.append(ImageContent(url))
        elif file is not None:
            blocks.append(FileContent(*file))
        else:
            blocks.append(TextContent(content.plain_text([part])))
    return blocks


def _object(arguments: str | None) -> dict[str, Any]:
    """Arguments as an object; a call that was malformed is shown as it was."""
    try:
        value = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return {"malformed_arguments": arguments}
    return value if isinstance(value, dict) else {"value": value}
