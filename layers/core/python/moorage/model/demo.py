"""The scripted demo model: offline, free, and honest about being no model.

It looks only at the items it is given, so that any process can play any turn. What it does, in this order:

1. **A script.** If a user message holds a fenced block ``moorage-script``, it plays that JSON list, one model turn per step::

       ```moorage-script
       [{"reason": "Look first.", "shell": {"commands": ["ls -l", "df -h ."], "timeout_ms": 5000}},
        {"say": "The listing was: {{output}}"}]
       ```

   The steps already played are the model turns after that message; later user messages go on with the script, and one with a script
   of its own replaces it. Keys of one step combine:

   ============================================== ============================================================================
   ``{"say": "text"}``                            a message; ``{{output}}`` is the latest tool outputs' text, ``{{n}}`` the turn's
                                                  number from 0 (both work in commands and arguments too)
   ``{"shell": {"commands": [...], ...}}``        a shell call, with ``timeout_ms`` and ``max_output_length`` if wanted
   ``{"shells": [{...}, {...}]}``                 several shell calls in one turn
   ``{"python": "code"}``                         a code interpreter call
   ``{"call": {"name": ..., "arguments": {}}}``   a call of any offered function (``"calls": [...]`` for several)
   ``{"reason": "text"}``                         a reasoning item with this summary, before the rest
   ``{"sleep_ms": n}``                            silence before the turn
   ``{"delta_ms": n}``                            silence before each delta
   ``{"fail": {"status": 429, ...}}``             the turn fails like an upstream: ``after_deltas`` (0: before the first),
                                                  ``times`` (1: only the first time in this process; 0: always), ``retry_after`` in
                                                  seconds
   ``{"repeat": {"times": n, "step": {...}}}``    the step n times
   ============================================== ============================================================================

   A step with only ``sleep_ms``, ``delta_ms``, ``reason`` or ``fail`` belongs to the step after it. A script's text is said as it
   stands; all other answers say that this is the scripted demo model.

2. **A demonstration**, if it has a shell: of sales (``demo_sales.py``), if it is asked which products declined; with a hosted computer
   too the one of a web page (``demo_computer.py``), if it is asked for a page with a button in the browser.
3. **Commands**, if the message holds some between backticks and the model has a shell; the answer then quotes what they printed.
4. **A function call**, if the message says ``call NAME with {...}``, if ``tool_choice`` demands one, or if a word of a function's
   name stands in the message; the answer then quotes the output.
5. **JSON**, if ``text.format`` wants it: the smallest value that fits the schema.
6. Otherwise it echoes.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, Final

import orjson

from moorage import large_bodies, limits
from moorage.dataclass import dataclass
from moorage.errors import UpstreamError
from moorage.model import base, content, demo_computer, demo_sales, tokens
from moorage.model.base import Delta, ModelRequest
from moorage.parallel import outweighs, worked
from moorage.wire.types import Item, Tool

INTRODUCTION: Final = "This is moorage's scripted demo model, not a real one."

_SCRIPT: Final = re.compile(r"```moorage-script[ \t]*\n(.*?)```", re.DOTALL)
_CALL: Final = re.compile(r"\bcall\s+`?([\w-]+)`?(?:\s+with\s+(\{.*\}))?", re.IGNORECASE | re.DOTALL)
_COMMAND: Final = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_MODIFIERS: Final = frozenset({"sleep_ms", "delta_ms", "reason", "fail"})
_SCRIPT_STEPS_MAX: Final = limits.ROUNDS_MAX
_SCHEMA_DEPTH_MAX: Final = 32
_SCHEMA_VALUES_MAX: Final = 2_000
_SCHEMA_CHARS_MAX: Final = 100_000
"""What a made-up answer may hold: a schema of a few lines can ask for 3^32 values."""


@dataclass(frozen=True, slots=True)
class DemoFailure:
    status: int
    after_deltas: int = 0
    times: int = 1
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class DemoCall:
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class DemoTurn:
    """The demo model's text and calls in one turn."""

    text: str = ""
    calls: tuple[DemoCall, ...] = ()
    reasoning: str = ""
    sleep_seconds: float = 0.0
    delta_seconds: float | None = None
    failure: DemoFailure | None = None
    key: str = ""
    """Names the step of a script, for the count of its failures."""


@dataclass(frozen=True, slots=True)
class Demo:
    delta_seconds: float = 0.0
    """Silence before each delta; for people who watch."""
    sleep: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep, repr=False)
    native_tools: frozenset[str] = frozenset({"function"})
    _failures: dict[str, int] = field(default_factory=dict, repr=False)
    """How often each failing step has failed here."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        is_long = outweighs([*request.items, *request.tools], limits.LOWERED_HERE_MAX)
        turn = await worked(lambda: next_turn(request)) if is_long else next_turn(request)
        large_bodies.left()
        failure = self._failure(turn)
        if turn.sleep_seconds:
            await self.sleep(turn.sleep_seconds)
        pause = self.delta_seconds if turn.delta_seconds is None else turn.delta_seconds
        deltas = await worked(lambda: _deltas(turn, request)) if is_long else _deltas(turn, request)
        for number, delta in enumerate(deltas):
            if failure is not None and number >= failure.after_deltas:
                raise _error(failure)
            await self.sleep(pause)
            yield delta
        if failure is not None:
            raise _error(failure)

    def _failure(self, turn: DemoTurn) -> DemoFailure | None:
        if turn.failure is None:
            return None
        count = self._failures.get(turn.key, 0)
        if turn.failure.times and count >= turn.failure.times:
            return None
        self._failures[turn.key] = count + 1
        return turn.failure


def _error(failure: DemoFailure) -> UpstreamError:
    return UpstreamError(
        f"The script asked for an upstream failure with status {failure.status}.",
        code="rate_limit_exceeded" if failure.status == 429 else "server_error" if failure.status >= 500 else "invalid_prompt",
        status=failure.status,
        is_retryable=failure.status == 429 or failure.status >= 500,
        retry_after_seconds=failure.retry_after_seconds,
    )


def _deltas(turn: DemoTurn, request: ModelRequest) -> list[Delta]:
    """The turn as an upstream would stream it, cut if the request's budget of tokens ends."""
    deltas: list[Delta] = []
    if turn.reasoning:
        deltas += [base.ReasoningStarted(), *(base.SummaryDelta(word) for word in _words(turn.reasoning)), base.ItemDone()]
    if turn.text:
        deltas += [
            base.MessageStarted("commentary" if turn.calls else None),
            *(base.TextDelta(word) for word in _words(turn.text)),
            base.ItemDone(),
        ]
    for call in turn.calls:
        deltas += [base.CallStarted(call.name), *(base.CallDelta(piece) for piece in _pieces(call.arguments)), base.ItemDone()]
    return _within_budget(deltas, request, "tool_calls" if turn.calls else "stop")


def _within_budget(deltas: list[Delta], request: ModelRequest, reason: Any) -> list[Delta]:
    chars_max = 4 * request.max_output_tokens if request.max_output_tokens is not None else None
    kept: list[Delta] = []
    chars = 0
    for delta in deltas:
        if isinstance(delta, base.TextDelta | base.SummaryDelta | base.CallDelta):
            chars += len(delta.text)
        if chars_max is not None and chars > chars_max:
            chars, reason = chars_max, "max_output_tokens"
            break
        kept.append(delta)
    usage = base.UsageReported(tokens.estimate_request(request), (chars + 3) // 4)
    return [*kept, usage, base.StreamFinished(reason)]


def _words(text: str) -> list[str]:
    return re.findall(r"\S+\s*|\s+", text)


def _pieces(text: str) -> list[str]:
    return [text[start : start + 48] for start in range(0, len(text), 48)]


# --- what comes next ------------------------------------------------------------------------------------------------------------


def next_turn(request: ModelRequest) -> DemoTurn:
    """Decide the next turn from the items alone."""
    items = request.items
    at = _latest(items, lambda item: _script_of(item) is not None)
    if at is not None:
        script = _script_of(items[at]) or ""
        turn = _scripted(script, items[at + 1 :], request)
        if turn is not None:
            return turn
    asked = _latest(items, lambda item: item.get("type", "message") == "message" and item.get("role") == "user")
    question = content.plain_text(items[asked].get("content")) if asked is not None else ""
    after = items[asked + 1 :] if asked is not None else items
    shell = _shell(request.tools)
    if shell is not None and demo_sales.is_asked(question):
        return _demonstration(question, shell, after, demo_sales.skills_in(_description(request.tools, shell)))
    computer = _computer(request.tools)
    if shell is not None and computer is not None and demo_computer.is_asked(question):
        return _computer_demonstration(shell, computer, after)
    return _conversation(question, after, request)


def _latest(items: tuple[Item, ...], is_meant: Callable[[Item], bool]) -> int | None:
    return next((index for index in range(len(items) - 1, -1, -1) if is_meant(items[index])), None)


def _script_of(item: Item) -> str | None:
    if item.get("type", "message") != "message" or item.get("role") != "user":
        return None
    found = _SCRIPT.search(content.plain_text(item.get("content")))
    return found[1] if found else None


def _turns(items: tuple[Item, ...]) -> int:
    """Model turns: runs of items that the model made."""
    count, is_models = 0, False
    for item in items:
        was_models, is_models = is_models, _is_models(item)
        count += is_models and not was_models
    return count


def _is_models(item: Item) -> bool:
    type_ = item.get("type", "message")
    return item.get("role") == "assistant" if type_ == "message" else type_ in ("function_call", "reasoning")


def _outputs(items: tuple[Item, ...]) -> list[str]:
    return [content.plain_text(item["output"]) for item in items if item.get("type") == "function_call_output"]


def _latest_outputs(items: tuple[Item, ...]) -> str:
    """Tool outputs since the model's last turn."""
    last = _latest(items, _is_models)
    return "\n".join(_outputs(items if last is None else items[last + 1 :]))


def _shell(tools: tuple[Tool, ...]) -> str | None:
    """The name that the shell was given: ``shell``, or another one if the user has a function of that name."""
    return next((t["name"] for t in tools if "commands" in (t.get("parameters") or {}).get("properties", {})), None)


def _computer(tools: tuple[Tool, ...]) -> str | None:
    """The same of a computer, which the client may have as well: only the hosted one opens addresses."""
    return next((t["name"] for t in tools if "navigate" in _kinds_of_action(t.get("parameters") or {})), None)


def _kinds_of_action(parameters: Mapping[str, Any]) -> list[str]:
    action = parameters.get("properties", {}).get("actions", {}).get("items", {})
    kinds: list[str] = action.get("properties", {}).get("type", {}).get("enum", [])
    return kinds


def _python(tools: tuple[Tool, ...]) -> str:
    return next((t["name"] for t in tools if t.get("name", "").startswith("python")), "python")


# --- scripts --------------------------------------------------------------------------------------------------------------------


def _scripted(script: str, after: tuple[Item, ...], request: ModelRequest) -> DemoTurn | None:
    """The script's next turn; None when it is played out."""
    try:
        steps = _flattened(orjson.loads(script))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return DemoTurn(text=f"{INTRODUCTION} Its script could not be read: {error}")
    number = _turns(after)
    if number >= len(steps):
        return None
    step = _filled(steps[number], {"output": _latest_outputs(after), "n": str(number)})
    try:
        return _turn_of(step, request, f"{script}\0{number}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return DemoTurn(text=f"{INTRODUCTION} Step {number} of its script could not be read: {error!r}")


def _flattened(steps: Any) -> list[dict[str, Any]]:
    """Repeats written out, modifiers joined to the step they belong to."""
    flat: list[dict[str, Any]] = []
    waiting: dict[str, Any] = {}
    for step in steps:
        if "repeat" in step:
            times = min(step["repeat"]["times"], _SCRIPT_STEPS_MAX)
            flat += [waiting | step["repeat"]["step"]] + [step["repeat"]["step"]] * (times - 1) if times > 0 else []
            waiting = {}
        elif set(step) <= _MODIFIERS:
            waiting |= step
        else:
            flat.append(waiting | step)
            waiting = {}
    return [*flat, waiting] if waiting else flat


def _filled(value: Any, names: dict[str, str]) -> Any:
    match value:
        case str():
            for name, text in names.items():
                value = value.replace("{{" + name + "}}", text)
            return value
        case dict():
            return {key: _filled(inner, names) for key, inner in value.items()}
        case list():
            return [_filled(inner, names) for inner in value]
    return value


def _turn_of(step: dict[str, Any], request: ModelRequest, key: str) -> DemoTurn:
    calls = [DemoCall(_shell(request.tools) or "shell", _json(call)) for call in step.get("shells", [])]
    if "shell" in step:
        calls.append(DemoCall(_shell(request.tools) or "shell", _json(step["shell"])))
    if "python" in step:
        calls.append(DemoCall(_python(request.tools), _json({"code": step["python"]})))
    for call in [*step.get("calls", []), *([step["call"]] if "call" in step else [])]:
        arguments = call.get("arguments", {})
        calls.append(DemoCall(call["name"], arguments if isinstance(arguments, str) else _json(arguments)))
    return DemoTurn(
        text=step.get("say", ""),
        calls=tuple(calls),
        reasoning=step.get("reason", ""),
        sleep_seconds=step.get("sleep_ms", 0) / 1000,
        delta_seconds=step["delta_ms"] / 1000 if "delta_ms" in step else None,
        failure=_failure_of(step["fail"]) if "fail" in step else None,
        key=key,
    )


def _failure_of(fail: dict[str, Any]) -> DemoFailure:
    return DemoFailure(fail["status"], fail.get("after_deltas", 0), fail.get("times", 1), fail.get("retry_after"))


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


# --- the demonstration and conversation -----------------------------------------------------------------------------------------


def _description(tools: tuple[Tool, ...], name: str) -> str:
    return next((str(tool.get("description")) for tool in tools if tool.get("name") == name), "")


def _demonstration(question: str, shell: str, after: tuple[Item, ...], skills: Mapping[str, str]) -> DemoTurn:
    move = demo_sales.next_move(question, _turns(after), _outputs(after), skills)
    if not move.commands:
        return DemoTurn(text=f"{move.text}\n\n({INTRODUCTION} The commands and their figures are real.)")
    return DemoTurn(text=move.text, calls=(DemoCall(shell, _json({"commands": list(move.commands)})),))


def _computer_demonstration(shell: str, computer: str, after: tuple[Item, ...]) -> DemoTurn:
    move = demo_computer.next_move(_turns(after), _outputs(after))
    if move.commands:
        return DemoTurn(text=move.text, calls=(DemoCall(shell, _json({"commands": list(move.commands)})),))
    if move.actions:
        return DemoTurn(text=move.text, calls=(DemoCall(computer, _json({"actions": list(move.actions)})),))
    return DemoTurn(text=f"{move.text}\n\n({INTRODUCTION} The page and what it shows are real.)")


def _conversation(question: str, after: tuple[Item, ...], request: ModelRequest) -> DemoTurn:
    outputs = _outputs(after)
    wants_json = (request.text or {}).get("format", {}).get("type", "text")
    if not outputs:
        call = _wanted_call(question, request)
        if call is not None:
            return DemoTurn(calls=(call,))
    if wants_json == "json_schema":
        return DemoTurn(text=_json(smallest(request.text["format"]["schema"]) if request.text else {}))
    if wants_json == "json_object":
        return DemoTurn(text=_json({"answer": INTRODUCTION}))
    if outputs:
        return DemoTurn(text=f"{INTRODUCTION} The tool answered: {outputs[-1]}")
    quoted = question if len(question) <= 2_000 else f"{question[:2_000]}…"
    hint = "Set OPENAI_API_KEY or MOORAGE_UPSTREAM_URL to use a real model."
    return DemoTurn(text=f"{INTRODUCTION} You said: {quoted}\n\n{hint}" if quoted else f"{INTRODUCTION} {hint}")


def _wanted_call(question: str, request: ModelRequest) -> DemoCall | None:
    functions = {tool["name"]: tool for tool in request.tools if tool["type"] == "function"}
    choice = request.tool_choice
    if not functions or choice == "none":
        return None
    found = _CALL.search(question)
    if found is not None and found[1] in functions:
        return DemoCall(found[1], _valid_json(found[2]) or _json(smallest(functions[found[1]].get("parameters") or {})))
    shell, commands = _shell(request.tools), _COMMAND.findall(question)
    if shell is not None and commands and choice == "auto":
        return DemoCall(shell, _json({"commands": commands}))
    words = set(re.findall(r"[a-z]{4,}", question.lower()))
    meant = next((name for name in functions if words & set(re.findall(r"[a-z]{4,}", name.lower()))), None)
    if isinstance(choice, dict) and choice.get("type") == "function":
        meant = choice["name"]
    elif choice == "required" or (isinstance(choice, dict) and choice.get("mode") == "required"):
        meant = meant or next(iter(functions))
    if meant is None or meant not in functions or (meant == shell and choice == "auto"):
        return None
    return DemoCall(meant, _json(smallest(functions[meant].get("parameters") or {})))


def _valid_json(text: str | None) -> str | None:
    try:
        return _json(orjson.loads(text)) if text else None
    except orjson.JSONDecodeError:
        return None


def smallest(schema: dict[str, Any]) -> Any:
    """A small value that fits a JSON schema: constants, first choices, required properties, minimal lengths.

    Schemas come from callers, and a short one may ask for a value without end; what is left over of a budget is ``null`` and short.
    """
    return _Smallest(schema).of(schema)


@dataclass(slots=True)
class _Smallest:
    root: dict[str, Any]
    values_left: int = _SCHEMA_VALUES_MAX
    """Counted as they are visited, whether they come from properties, references, or the members of a list."""
    chars_left: int = _SCHEMA_CHARS_MAX

    def of(self, schema: Any, depth: int = 0) -> Any:
        self.values_left -= 1
        if depth > _SCHEMA_DEPTH_MAX or self.values_left < 0 or not isinstance(schema, dict):
            return None
        if "$ref" in schema:
            return self.of(_resolved(str(schema["$ref"]), self.root), depth + 1)
        for key in ("const", "default"):
            if key in schema:
                return self._copied(schema[key])
        if schema.get("enum"):
            return self._copied(schema["enum"][0])
        for key in ("anyOf", "oneOf", "allOf"):
            if schema.get(key):
                return self.of(schema[key][0], depth + 1)
        kind = schema.get("type", "object" if "properties" in schema else "string")
        return self._of_kind(kind[0] if isinstance(kind, list) and kind else kind, schema, depth)

    def _of_kind(self, kind: Any, schema: dict[str, Any], depth: int) -> Any:
        match kind:
            case "object":
                properties = schema.get("properties", {})
                names = [name for name in schema.get("required", [])[: max(0, self.values_left)] if self._takes(len(name))]
                return {name: self.of(properties.get(name, {}), depth + 1) for name in names}
            case "array":
                members = min(_count(schema, "minItems"), max(0, self.values_left))
                return [self.of(schema.get("items", {}), depth + 1) for _ in range(members)]
            case "integer" | "number":
                return schema.get("minimum", schema.get("maximum", 0))
            case "boolean":
                return True
            case "null":
                return None
        length = max(len("demo"), _count(schema, "minLength"))
        if "maxLength" in schema:
            length = min(length, _count(schema, "maxLength"))
        return "demo".ljust(length, ".")[:length] if self._takes(length) else None

    def _copied(self, value: Any) -> Any:
        """A constant may be long, and be asked for many times."""
        return value if self._takes(len(_json(value))) else None

    def _takes(self, chars: int) -> bool:
        if chars > self.chars_left:
            return False
        self.chars_left -= chars
        return True


def _count(schema: dict[str, Any], key: str) -> int:
    value = schema.get(key, 0)
    return int(value) if isinstance(value, int | float) and value > 0 else 0


def _resolved(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    value: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        value = value.get(step, {}) if step and isinstance(value, dict) else value
    return value if isinstance(value, dict) else {}
