"""What a request may say of a server, what of its tools is offered and needs a person's word, and what a model reads."""

from contextlib import suppress
from typing import Any

import orjson
import pytest
from moorage import limits
from moorage.errors import ApiError
from moorage.loop.truncate import fit
from moorage.model.remote_servers import RemoteServer, RemoteServers
from moorage.tools.calls import CallEnd, ItemPosition, KnownCall, finished_of
from moorage.tools.lowering import lower
from moorage.tools.mcp import listing
from moorage.tools.mcp.room import WORDS, Mcp
from moorage.tools.mcp.servers import McpServer
from moorage.wire.requests import parse_create

TOOL: dict[str, Any] = {"type": "mcp", "server_label": "depot", "server_url": "https://depot.example/mcp"}
READ = {"name": "find", "description": "Find it.", "input_schema": {"type": "object"}, "annotations": {"read_only": True}}
WRITE = {"name": "order", "description": None, "input_schema": {"type": "object"}, "annotations": {"read_only": False}}
LIST: dict[str, Any] = {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "depot", "tools": [READ, WRITE]}
ASKED: dict[str, Any] = {
    "id": "mcpr_1",
    "type": "mcp_approval_request",
    "server_label": "depot",
    "name": "order",
    "arguments": '{"count": 3}',
}


def answer(approve: bool, **more: Any) -> dict[str, Any]:
    return {"id": "mcpa_1", "type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": approve, **more}


def called(**more: Any) -> dict[str, Any]:
    return {"id": "mcp_1", "type": "mcp_call", "server_label": "depot", "name": "find", "arguments": "{}", "output": None, **more}


# --- the request ---


def parsed(**fields: Any) -> dict[str, Any]:
    (tool,) = parse_create({"model": "m", "input": "go", "tools": [TOOL | fields]}).tools
    return tool


FORMS = (
    {"allowed_tools": ["find"]},
    {"allowed_tools": {"tool_names": ["find"], "read_only": True}},
    {"require_approval": "never"},
    {"require_approval": {"always": {"tool_names": ["order"]}, "never": {"read_only": True}}},
    {"headers": {"X-Key": "1"}, "authorization": "abc", "server_description": "Parts.", "defer_loading": False},
)


@pytest.mark.parametrize("fields", FORMS)
def test_all_forms_of_the_api_are_taken(fields: dict[str, Any]) -> None:
    assert parsed(**fields) == TOOL | fields


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a connector": ({"connector_id": "connector_gmail"}, "tools[0].connector_id"),
    "a tunnel": ({"tunnel_id": "tun_1"}, "tools[0].tunnel_id"),
    "another scheme": ({"server_url": "file:///etc/passwd"}, "tools[0].server_url"),
    "a password": ({"server_url": "https://me:secret@depot.example"}, "tools[0].server_url"),
    "no host": ({"server_url": "https://"}, "tools[0].server_url"),
    "a fragment": ({"server_url": "https://depot.example/#a"}, "tools[0].server_url"),
    "a host header": ({"headers": {"Host": "inner"}}, "tools[0].headers.Host"),
    "a header of the protocol": ({"headers": {"Mcp-Session-Id": "1"}}, "tools[0].headers.Mcp-Session-Id"),
    "two headers in one": ({"headers": {"X-A": "1\r\nX-B: 2"}}, "tools[0].headers.X-A"),
    "a token with a line": ({"authorization": "a\nb"}, "tools[0].authorization"),
    "a label": ({"server_label": "7 up"}, "tools[0].server_label"),
    "an approval": ({"require_approval": "sometimes"}, "tools[0].require_approval"),
    "deferred": ({"defer_loading": True}, "tools[0].defer_loading"),
    "an unknown field": ({"url": "https://x"}, "tools[0].url"),
}


@pytest.mark.parametrize(("fields", "param"), REFUSED.values(), ids=REFUSED)
def test_what_a_server_cannot_be_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        parsed(**fields)
    assert (refused.value.status, refused.value.param) == (400, param)


def test_two_servers_of_one_label_are_refused() -> None:
    with pytest.raises(ApiError) as refused:
        parse_create({"model": "m", "input": "go", "tools": [TOOL, TOOL]})
    assert refused.value.param == "tools[1].server_label"


def test_a_server_of_an_item_is_refused() -> None:
    item = {"type": "additional_tools", "role": "developer", "tools": [TOOL]}
    with pytest.raises(ApiError) as refused:
        parse_create({"model": "m", "input": [item]})
    assert refused.value.param == "input[0].tools[0].server_url"


# --- secrets ---


def test_what_opens_a_server_is_told_to_nobody() -> None:
    keys = {"authorization": "b3arer", "headers": {"X-Key": "h3ader"}}
    secret = TOOL | {"server_url": "https://depot.example/k3y/mcp?token=t0ken"} | keys
    kept, secrets = Mcp().extract_secrets(secret, "secret_0", RemoteServers())
    shown = Mcp().response_tool(kept, None)
    for hidden in ("k3y", "t0ken", "b3arer", "h3ader"):
        assert hidden not in str(kept) + str(shown)
    assert shown == {
        "type": "mcp",
        "server_label": "depot",
        "server_url": "https://depot.example/<redacted>",
        "allowed_tools": None,
        "headers": None,
        "require_approval": "always",
        "server_description": None,
    }
    server = McpServer.of_tool(kept, secrets.get)
    assert server == McpServer(secret["server_url"], {"X-Key": "h3ader", "Authorization": "Bearer b3arer"})
    assert "b3arer" not in repr(server)
    assert McpServer.of_tool(kept, lambda handle: None) is None


def test_the_operators_servers_go_by_their_label_alone() -> None:
    configured = RemoteServers({"depot": RemoteServer("http://10.0.0.7:9000/mcp", {"Authorization": "Bearer operators"})})
    kept, secrets = Mcp().extract_secrets({"type": "mcp", "server_label": "depot"}, "secret_0", configured)
    assert McpServer.of_tool(kept, secrets.get) == McpServer("http://10.0.0.7:9000/mcp", {"Authorization": "Bearer operators"}, True)
    assert Mcp().response_tool(kept, None)["server_url"] is None
    other, secrets = Mcp().extract_secrets(TOOL, "secret_0", configured)
    assert McpServer.of_tool(other, secrets.get) == McpServer(TOOL["server_url"]), (
        "their key goes to their own address and nowhere else"
    )


@pytest.mark.parametrize("own", ["authorization", "headers"])
def test_the_operators_server_takes_no_key_of_the_request(own: str) -> None:
    configured = RemoteServers({"depot": RemoteServer("http://10.0.0.7:9000/mcp")})
    with pytest.raises(ApiError, match=f"leave '{own}' out"):
        Mcp().extract_secrets({"type": "mcp", "server_label": "depot", own: "x"}, "secret_0", configured)


HOSTS: dict[str, tuple[tuple[str, ...] | None, list[str]]] = {
    "any": (None, ["https://depot.example/mcp", "https://a.parts.example./", "https://elsewhere.example:8443/"]),
    "some": (("depot.example", "*.parts.example"), ["https://depot.example/mcp", "https://a.parts.example./"]),
    "none": ((), []),
}


@pytest.mark.parametrize(("hosts", "allowed"), HOSTS.values(), ids=HOSTS)
def test_the_operator_says_which_hosts_requests_may_name(hosts: tuple[str, ...] | None, allowed: list[str]) -> None:
    configured = RemoteServers({"mine": RemoteServer("http://10.0.0.7/")}, hosts)
    Mcp().extract_secrets({"type": "mcp", "server_label": "mine"}, "secret_0", configured)
    taken = []
    for url in ("https://depot.example/mcp", "https://a.parts.example./", "https://elsewhere.example:8443/"):
        with suppress(ApiError):
            Mcp().extract_secrets(TOOL | {"server_url": url}, "secret_0", configured)
            taken.append(url)
    assert taken == allowed


def test_a_label_without_an_address_must_be_known() -> None:
    with pytest.raises(ApiError, match="knows none by that label"):
        Mcp().extract_secrets({"type": "mcp", "server_label": "depot"}, "secret_0", RemoteServers())


# --- which tools, and whose word ---

ALLOWED: dict[str, tuple[Any, list[str]]] = {
    "all": (None, ["find", "order"]),
    "an empty filter": ({}, ["find", "order"]),
    "names": (["order"], ["order"]),
    "none": ([], []),
    "names in a filter": ({"tool_names": ["order"]}, ["order"]),
    "what reads": ({"read_only": True}, ["find"]),
    "what writes": ({"read_only": False}, ["order"]),
    "both": ({"tool_names": ["order"], "read_only": True}, []),
}


@pytest.mark.parametrize(("allowed", "names"), ALLOWED.values(), ids=ALLOWED)
def test_which_tools_are_wanted(allowed: Any, names: list[str]) -> None:
    tool = TOOL if allowed is None else TOOL | {"allowed_tools": allowed}
    assert [each["name"] for each in (READ, WRITE) if listing.is_allowed(tool, each)] == names


APPROVALS: dict[str, tuple[Any, list[str]]] = {
    "by default": (None, ["find", "order"]),
    "always": ("always", ["find", "order"]),
    "never": ("never", []),
    "never some": ({"never": {"tool_names": ["find"]}}, ["order"]),
    "never what reads": ({"never": {"read_only": True}}, ["order"]),
    "always some": ({"always": {"tool_names": ["order"]}}, ["find", "order"]),
    "both": ({"always": {"read_only": True}, "never": {"tool_names": ["find", "order"]}}, ["find"]),
    "an empty filter": ({"never": {}}, ["find", "order"]),
}


@pytest.mark.parametrize(("asked", "names"), APPROVALS.values(), ids=APPROVALS)
def test_which_calls_need_a_persons_word(asked: Any, names: list[str]) -> None:
    tool = TOOL if asked is None else TOOL | {"require_approval": asked}
    assert [each["name"] for each in (READ, WRITE) if listing.needs_approval(tool, each)] == names


# --- what a model is offered ---


def lowered(*items: dict[str, Any], tools: Any = (TOOL,), choice: Any = "auto") -> Any:
    return lower(items, list(tools), choice, frozenset({"function"}))


def test_a_list_offers_functions_and_their_calls_come_back_as_calls_or_questions() -> None:
    made = lowered(LIST, tools=[TOOL | {"require_approval": {"never": {"read_only": True}}, "server_description": "Spare parts."}])
    assert [(tool["name"], tool["description"]) for tool in made.tools] == [
        ("depot__find", "Spare parts.\nFind it."),
        ("depot__order", "Spare parts."),
    ]
    calls = [made.restore(name).call_item('{"sku": 1}', "call_1") for name in ("depot__find", "depot__order")]
    place = ItemPosition("x_1", 0, None, True)
    shown = [Mcp().open_call(call, place) for call in calls]
    assert [(opening.item["type"], opening.item["name"], opening.is_whole) for opening in shown] == [
        ("mcp_call", "find", False),
        ("mcp_approval_request", "order", True),
    ]
    assert shown[1].item == ASKED | {"id": "x_1", "arguments": '{"sku": 1}'}
    assert made.restore("depot__find").call_item("[1]", "call_1") is None


def test_without_a_list_nothing_is_offered_and_nothing_goes_to_the_upstream() -> None:
    assert lowered().tools == ()
    assert lower([LIST], [TOOL], "auto", frozenset({"function", "mcp"})).tools[0]["type"] == "function"


def test_a_later_list_takes_the_place_of_the_one_before() -> None:
    later = LIST | {"id": "mcpl_2", "tools": [READ | {"name": "count"}, READ]}
    assert [tool["name"] for tool in lowered(LIST, later).tools] == ["depot__find", "depot__count"]
    assert [tool["name"] for tool in lowered(LIST, LIST | {"error": "down", "tools": []}).tools] == ["depot__find", "depot__order"]


def test_a_list_of_a_server_that_is_not_among_the_tools_offers_nothing() -> None:
    assert lowered(LIST, tools=[]).tools == ()


CHOICES: dict[str, tuple[dict[str, Any], Any]] = {
    "one": ({"type": "mcp", "server_label": "depot", "name": "find"}, {"type": "function", "name": "depot__find"}),
    "a server": (
        {"type": "mcp", "server_label": "depot"},
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "depot__find"}, {"type": "function", "name": "depot__order"}],
        },
    ),
    "one that is not there": ({"type": "mcp", "server_label": "depot", "name": "lost"}, "auto"),
    "among others": (
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "depot"}]},
        {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "depot__find"}, {"type": "function", "name": "depot__order"}],
        },
    ),
}


@pytest.mark.parametrize(("choice", "expected"), CHOICES.values(), ids=CHOICES)
def test_a_server_or_a_tool_of_it_is_chosen(choice: Any, expected: Any) -> None:
    assert lowered(LIST, choice=choice).tool_choice == expected


def test_what_was_said_before_is_a_prefix_of_what_is_said_after() -> None:
    items = [LIST, ASKED, answer(False), called(output="14"), ASKED | {"id": "mcpr_2"}, answer(True) | {"id": "mcpa_2"}]
    whole = lowered(*items).items
    for length in range(len(items)):
        assert whole[: len(lowered(*items[:length]).items)] == lowered(*items[:length]).items


ANYTHING: dict[str, Any] = {"type": "object", "properties": {}}


@pytest.mark.parametrize("schema", [{"type": "string"}, "object", None, {"type": 3}], ids=str)
def test_a_schema_that_is_no_objects_stands_for_any_object(schema: Any) -> None:
    assert listing.parameters_of(schema) == ANYTHING


def of(a: Any) -> dict[str, Any]:
    """A schema with a sound property beside the one in question."""
    return {"type": "object", "properties": {"a": a, "sound": {"type": "integer"}}}


KEYWORDS: dict[str, tuple[Any, Any]] = {
    "a type that is none": (of({"type": "strange", "title": "A"}), of({"title": "A"})),
    "properties in a list": ({"type": "object", "properties": ["a"], "title": "T"}, ANYTHING | {"title": "T"}),
    "required twice": (of({}) | {"required": ["a", "a"]}, of({})),
    "a reference elsewhere": (of({"$ref": "http://169.254.169.254/"}), of({})),
    "an empty choice": (of({"type": "string", "enum": []}), of({"type": "string"})),
    "a property that is no schema": (of("text"), of({})),
    "a branch that is no schema": (of({"anyOf": [{"type": "string"}, "text"], "title": "A"}), of({"title": "A"})),
    "names by expressions": (of({"type": "object", "patternProperties": {"^(": {}}}), of({"type": "object"})),
    "a tuple of old": (of({"items": [{"type": "string"}, {}]}), of({"prefixItems": [{"type": "string"}, {}]})),
    "a pattern": (of({"type": "string", "pattern": r"^[\p{L} ]+$"}), of({"type": "string", "description": r"Pattern: ^[\p{L} ]+$"})),
    "a pattern beside words": (
        of({"description": "A year.", "pattern": "^(?<year>[0-9]{4})$"}),
        of({"description": "A year. (pattern: ^(?<year>[0-9]{4})$)"}),
    ),
    "a pattern that costs minutes": (of({"type": "string", "pattern": "(?i)" + "[\u0001-\U0010fffe]" * 3_000}), of({"type": "string"})),
    "a pattern that no machine holds": (of({"pattern": "a{9999999999999999}"}), of({"description": "Pattern: a{9999999999999999}"})),
    "a pattern too deep": (of({"pattern": "(" * 4_000 + ")" * 4_000}), of({})),
}


@pytest.mark.parametrize(("schema", "expected"), KEYWORDS.values(), ids=KEYWORDS)
def test_a_keyword_that_upstreams_would_refuse_is_left_out_alone(schema: Any, expected: Any) -> None:
    assert listing.parameters_of(schema) == expected


def test_a_schema_too_deep_ends_where_it_is() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(100):
        schema = {"type": "object", "properties": {"a": schema}}
    shown, depth = listing.parameters_of(schema), 0
    while "a" in shown.get("properties", {}):
        shown, depth = shown["properties"]["a"], depth + 1
    assert (shown, depth) == ({"type": "object"}, 23)


def test_a_true_schema_stays_but_for_what_stands_beside_an_object() -> None:
    schema = {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/b"}]}}, "$defs": {"b": True}}
    assert listing.parameters_of(schema | {"$schema": "x", "oneOf": [{}]}) == schema


# --- what a model reads ---

PICTURE = {"type": "image", "data": "iVBORw0KGgoA", "mimeType": "image/png"}

ANSWERS: dict[str, tuple[dict[str, Any], Any]] = {
    "text": ({"output": "14"}, "14"),
    "nothing": ({"output": ""}, "(no output)"),
    "an error of the tool": (
        {"error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "burnt"}]}},
        "Error: burnt",
    ),
    "an error of the protocol": ({"error": {"type": "mcp_protocol_error", "code": -32602, "message": "no"}}, "Error: no"),
    "an error of old": ({"error": "gone"}, "Error: gone"),
    "JSON that is its own": ({"output": '[{"type": "text", "a": 1}]'}, '[{"type": "text", "a": 1}]'),
    "a picture": (
        {"output": '[{"type":"text","text":"See"},{"type":"image","data":"iVBORw0KGgoA","mimeType":"image/png"}]'},
        [
            {"type": "input_text", "text": "See"},
            {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iVBORw0KGgoA"},
        ],
    ),
    "bytes that are no picture": (
        {"output": '[{"type":"image","data":"AAAA","mimeType":"image/png"}]'},
        '[{"type":"image","data":"AAAA","mimeType":"image/png"}]',
    ),
    "a long text": (
        {"output": "a" * 70_000 + "b" * 70_000},
        "a" * 32_768 + "\n… 74464 chars truncated …\n" + "b" * 32_768,
    ),
    "long texts beside a picture": (
        {"output": orjson.dumps([*({"type": "text", "text": letter * 30_000} for letter in "abcd"), PICTURE]).decode()},
        [
            {"type": "input_text", "text": "a" * 30_000},
            {"type": "input_text", "text": "b" * 2_768 + "\n… 54464 chars truncated …\n"},
            {"type": "input_text", "text": "c" * 2_768},
            {"type": "input_text", "text": "d" * 30_000},
            {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iVBORw0KGgoA"},
        ],
    ),
    "a text that is left out whole": (
        {"output": orjson.dumps([*({"type": "text", "text": letter * 40_000} for letter in "abc"), PICTURE]).decode()},
        [
            {"type": "input_text", "text": "a" * 32_768 + "\n… 54464 chars truncated …\n"},
            {"type": "input_text", "text": "c" * 32_768},
            {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iVBORw0KGgoA"},
        ],
    ),
    "a long error of old": ({"error": "e" * 65_530}, "Error: " + "e" * 32_761 + "\n… 1 chars truncated …\n" + "e" * 32_768),
    "a long error": (
        {"error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "e" * 65_530}]}},
        "Error: " + "e" * 32_761 + "\n… 1 chars truncated …\n" + "e" * 32_768,
    ),
}


@pytest.mark.parametrize(("fields", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_what_a_model_reads_of_a_call(fields: dict[str, Any], expected: Any) -> None:
    asked, answered = lowered(LIST, called(**fields)).items
    assert (asked["name"], asked["arguments"], answered["output"]) == ("depot__find", "{}", expected)


@pytest.mark.parametrize(("count", "is_shown"), [(limits.MCP_READ_PARTS_MAX, True), (limits.MCP_READ_PARTS_MAX + 1, False)])
def test_a_server_does_not_fill_the_models_window_with_pictures(count: int, is_shown: bool) -> None:
    _, answered = lowered(LIST, called(output=orjson.dumps([PICTURE] * count).decode())).items
    assert isinstance(answered["output"], list) is is_shown
    assert is_shown or len(answered["output"]) <= limits.MCP_READ_CHARS_MAX + 40


def test_the_model_reads_a_denials_reason_and_an_approvals_call() -> None:
    asked, answered = lowered(LIST, ASKED, answer(False, reason="Too many.")).items
    assert (asked["name"], asked["arguments"]) == ("depot__order", '{"count": 3}')
    assert answered["output"] == "The user did not allow this call, and it was not run. They say: Too many."
    assert lowered(LIST, ASKED, answer(True)).items == ()
    assert len(lowered(LIST, ASKED, answer(True), called(approval_request_id="mcpr_1", output="3")).items) == 2


# --- approvals ---


def test_an_approval_answers_a_question_once() -> None:
    Mcp().validate_items([answer(True)], [ASKED], [TOOL])
    Mcp().validate_items([ASKED, answer(True), called(approval_request_id="mcpr_1")], [], [])
    Mcp().validate_items([answer(False)], [ASKED], [])
    for items, chain, tools, param in (
        ([answer(True)], [], [TOOL], "input[0].approval_request_id"),
        ([answer(True), answer(False)], [ASKED], [TOOL], "input[1].approval_request_id"),
        ([answer(True)], [ASKED, answer(True)], [TOOL], "input[0].approval_request_id"),
        ([answer(True)], [ASKED], [], "tools"),
    ):
        with pytest.raises(ApiError) as refused:
            Mcp().validate_items(items, chain, tools)
        assert (refused.value.status, refused.value.param) == (400, param)


# --- ends ---


@pytest.mark.parametrize("end", CallEnd)
def test_every_end_that_is_no_result_is_an_error_of_the_call(end: CallEnd) -> None:
    known = KnownCall("resp_1", "mcp_1", called(status="in_progress"), 0, "mcp_1")
    item = finished_of(Mcp().end(known, end, "So it was."))
    assert (item["status"], item["error"]["type"]) == ("failed", "mcp_protocol_error")
    assert item["error"]["message"] == f"{WORDS[end]} So it was."


def test_a_list_is_left_out_by_no_truncation() -> None:
    user = {"id": "msg_1", "type": "message", "role": "user", "content": "x" * 4_000}
    items = [LIST, *({**user, "id": f"msg_{number}"} for number in range(20))]
    left = fit(items, frame_tokens=0, window_tokens=4_000, output_tokens=100, is_auto=True)
    assert (left[0], 1 < len(left) < len(items)) == (LIST, True)
