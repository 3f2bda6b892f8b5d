"""The one catalogue of errors.

Every error that a client can meet is a class or a constructor here, so that the sentence, the ``type``, the ``param`` and the
``code`` are written once. Errors are named for what happens next:

* an :class:`ApiError` is answered to the caller as ``{"error": {"message", "type", "param", "code"}}``;
* an :class:`UpstreamError` comes from a model provider; ``is_retryable`` says whether the step may ask again;
* a :class:`SandboxError` comes from a container; ``SandboxStarting`` makes the loop wait, the others become a tool output.

The client reads a calm sentence that says what to do; the log gets the cause (``raise ... from error``).
"""

import difflib
from collections.abc import Iterable
from typing import Final

from moorage.errors.kinds import *

STORAGE_LIMIT: Final = "storage_limit_reached"


def unknown_parameter(param: str, advice: str = "", known: Iterable[str] = ()) -> ApiError:
    """400 for an unknown name; ``known`` are the names that it may be mistyped from."""
    if not advice and (near := difflib.get_close_matches(param, list(known), 1, cutoff=0.75)):
        advice = f" Did you mean '{near[0]}'?"
    return bad_request(f"Unknown parameter: '{param}'.{advice}", param=param, code="unknown_parameter")


def unsupported_parameter(param: str, reason: str) -> ApiError:
    return bad_request(f"Unsupported parameter: '{param}'. {reason}", param=param, code="unsupported_parameter")


def unsupported_value(param: str, value: str, reason: str) -> ApiError:
    return bad_request(f"Unsupported value: '{value}' for '{param}'. {reason}", param=param, code="unsupported_value")


def invalid_type(param: str, expected: str, got: str) -> ApiError:
    return bad_request(f"Invalid type for '{param}': expected {expected}, but got {got} instead.", param=param, code="invalid_type")


def invalid_value(param: str, message: str) -> ApiError:
    return bad_request(f"Invalid value for '{param}': {message}", param=param, code="invalid_value")


def missing_parameter(param: str) -> ApiError:
    return bad_request(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")


def unknown_url(method: str, path: str, served: Iterable[str]) -> ApiError:
    """404 for an address that is none; ``served`` are those that are, by their first words."""
    if not f"{path}/".startswith("/v1/"):
        advice = "The addresses of this API begin with '/v1': let base_url end with it."
    elif path.startswith("/v1/v1/"):
        advice = "It has '/v1' twice: let base_url end with one."
    elif path.endswith("/") and path != "/v1/":
        advice = "Leave out its last '/'."
    else:
        advice = f"This deployment serves {', '.join(served)}."
    return not_found(f"Invalid URL ({method} {path}). {advice}", code="unknown_url")


def method_not_allowed(method: str, path: str, allowed: Iterable[str]) -> ApiError:
    methods = ", ".join(allowed)
    return ApiError(
        405, f"Not allowed to {method} on {path}. It takes {methods}.", code="method_not_supported", headers={"allow": methods}
    )


def missing_api_key() -> ApiError:
    return _unauthorized("You didn't provide an API key.")


def foreign_api_key(prefix: str) -> ApiError:
    """The key of another service, most often the one that a shell holds in OPENAI_API_KEY."""
    return _unauthorized(f"Incorrect API key provided: keys of this deployment begin with '{prefix}', and this one does not.")


def invalid_api_key() -> ApiError:
    return _unauthorized("Incorrect API key provided.")


def invalid_token(reason: str) -> ApiError:
    """``reason`` names its fault, without a word of it."""
    return ApiError(401, f"This token opens nothing: {reason}.", code="invalid_token")


def token_without_place(what: str, claim: str) -> ApiError:
    message = f"This token opens nothing: its claim '{claim}' names no {what} of this deployment. Ask the operator for one."
    return ApiError(403, message, code="token_without_place")


def issuer_unreachable() -> ApiError:
    message = "The issuer of tokens cannot be reached at the moment. Please try again."
    return ApiError(503, message, type="server_error", code="issuer_unreachable", headers={"retry-after": "5"})


def sign_in_failed(reason: str) -> ApiError:
    return ApiError(400, f"{reason} Sign in again.", code="sign_in_failed")


def admin_only() -> ApiError:
    return ApiError(403, "Only an administrator of the tenant may change this.", code="admin_only")


def link_needs_key() -> ApiError:
    message = "A link ends with the API key that made it, and a token ends within hours: make the link with an API key."
    return ApiError(403, message, code="link_needs_key")


def key_reads_only() -> ApiError:
    advice = "'moorage console' without --read-only opens one that may."
    return ApiError(403, f"This key may look and change nothing. {advice}", code="read_only_key")


def key_is_code() -> ApiError:
    return ApiError(403, "This is a code that the console exchanges once for a key, and no key.", code="one_time_code")


def code_used_up() -> ApiError:
    return ApiError(401, "This code has been used or has run out. 'moorage console' makes another one.", code="invalid_api_key")


def _unauthorized(what: str) -> ApiError:
    advice = "Send a key of this deployment as 'Authorization: Bearer <key>'; 'moorage keys create' makes one."
    return ApiError(401, f"{what} {advice}", code="invalid_api_key")


def response_not_found(response_id: str) -> ApiError:
    return not_found(f"Response with id '{response_id}' not found.", code="response_not_found")


def approval_not_found(approval_id: str) -> ApiError:
    return not_found(f"Approval with id '{approval_id}' not found.", code="approval_not_found")


def approval_decided(approval_id: str, how: str) -> ApiError:
    """409 for a decision that another one contradicts; asking again would change nothing."""
    return _conflict(f"The approval '{approval_id}' has been decided already: it was {how}.", "approval_decided")


def approval_not_needed(approval_id: str) -> ApiError:
    return _conflict(f"The approval '{approval_id}' is not waited for any more: its response has ended.", "approval_not_needed")


def approval_link_not_valid() -> ApiError:
    return not_found("This link is not valid, or not any more. Ask for a new one.", code="approval_link_not_valid")


def _conflict(message: str, code: str) -> ApiError:
    return ApiError(409, message, code=code, headers={"x-should-retry": "false"})


def previous_response_not_found(response_id: str) -> ApiError:
    return bad_request(
        f"Previous response with id '{response_id}' not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )


def file_not_found(file_id: str, *, param: str | None = None) -> ApiError:
    return not_found(f"No such File object: {file_id}", param=param, code="file_not_found")


def container_not_found(container_id: str, *, param: str | None = None) -> ApiError:
    return ContainerLost(404, f"Container with id '{container_id}' not found.", container_id, param=param, code="container_not_found")


def container_expired(container_id: str) -> ApiError:
    return ContainerLost(400, "Container is expired.", container_id, code="container_expired")


def shell_passthrough_unsupported(model: str, provider: str, *, param: str) -> ApiError:
    return bad_request(
        f"The hosted shell of the model '{model}' shall run at its upstream (shell = \"upstream\" in models.toml), and the provider "
        f"'{provider}' has none: only openai_responses does. Use a shell with the environment 'local', or another model.",
        param=param,
        code="shell_passthrough_unsupported_provider",
    )


def model_not_found(model: str) -> ApiError:
    return not_found(
        f"The model '{model}' does not exist or you do not have access to it. 'GET /v1/models' lists the models of this "
        "deployment; models.toml defines them.",
        param="model",
        code="model_not_found",
    )


def embedding_model_not_found(model: str, there: tuple[str, ...]) -> ApiError:
    return not_found(
        f"The embedding model '{model}' does not exist or you do not have access to it. This deployment has "
        f"{_listed(there)}; 'embedding' in models.toml defines more.",
        param="model",
        code="model_not_found",
    )


def model_without_key(model: str) -> ApiError:
    return not_found(
        f"The model '{model}' cannot be used: this deployment has no key for it. Its operator has to set the variable that models.toml "
        "names there.",
        param="model",
        code="model_not_found",
    )


_BY_ID: Final = "Upload large content with /v1/files or /v1/uploads and refer to it by id."


def connection_failed(error: Exception, model: str = "") -> str:
    """Why a model's server gave no answer, or no more of one; ``error`` is httpx's, ``model`` the name that its server knows."""
    kind = type(error).__name__
    if kind not in ("ConnectError", "ConnectTimeout"):
        return f"The connection to the model upstream failed ({kind})."
    server = f"the server of '{model}'" if model else "its server"
    advice = "'moorage logs' shows why, 'moorage doctor' asks each model's server."
    return f"The connection to the model upstream failed: {server} cannot be reached ({kind}). {advice}"


def body_too_large(bytes_max: int, advice: str = _BY_ID) -> ApiError:
    return ApiError(
        413,
        f"The request body is larger than {bytes_max} bytes. {advice}",
        code="request_too_large",
    )


def encoded_body(encoding: str) -> ApiError:
    return ApiError(
        415,
        f"Unsupported Content-Encoding: '{encoding[:80]}'. Send the body as it is, or as gzip.",
        code="unsupported_content_encoding",
    )


def unreadable_body(encoding: str) -> ApiError:
    return ApiError(400, f"The request body is not the whole {encoding} file that Content-Encoding says it is.", code="invalid_body")


def rate_limited(message: str, retry_after_seconds: float) -> ApiError:
    return ApiError(
        429,
        message,
        type="rate_limit_error",
        code="rate_limit_exceeded",
        headers={"retry-after": str(max(1, round(retry_after_seconds)))},
    )


def too_many_large_bodies() -> ApiError:
    return rate_limited("Too many bytes of your requests and their answers are here at once. Send fewer large requests.", 5)


def draining() -> ApiError:
    message = "Nothing is begun here for now, and what runs comes to its end (MOORAGE_DRAIN). It can be read and cancelled. Retry."
    return ApiError(503, message, type="server_error", code="draining", headers={"retry-after": "60"})


_NOT_AGAIN: Final = {"x-should-retry": "false"}


def idempotency_key_reused() -> ApiError:
    return ApiError(
        409,
        "Keys for idempotent requests can only be used with the same parameters they were first used with. Use another "
        "Idempotency-Key for another request.",
        type="idempotency_error",
        code="idempotency_key_reused",
        headers=_NOT_AGAIN,
    )


def idempotency_key_pending() -> ApiError:
    """409: the SDKs send it again."""
    return ApiError(
        409,
        "Another request with this Idempotency-Key is being processed. Retry when it has ended.",
        type="idempotency_error",
        code="idempotency_key_pending",
        headers={"retry-after": "1"},
    )


def idempotency_key_gone() -> ApiError:
    return ApiError(
        409,
        "A request with this Idempotency-Key was answered, and its answer was not kept: it was not to be stored, or is too large. "
        "Use another Idempotency-Key to run it again.",
        type="idempotency_error",
        code="idempotency_key_used",
        headers=_NOT_AGAIN,
    )


def too_many_connections(most: int) -> ApiError:
    return rate_limited(f"An API key may hold {most} WebSocket connections open at once. Close one first.", 5)


def quota_used_up() -> ApiError:
    """429, but one that the SDKs need not send again."""
    return ApiError(
        429,
        "You exceeded your current quota of requests for today. The operator's usage plan sets it.",
        type="insufficient_quota",
        code="insufficient_quota",
        headers={"x-should-retry": "false"},
    )


def time_over(seconds: int) -> ApiError:
    """An answer that cannot be taken up again elsewhere has reached the end of its process."""
    return bad_request(
        f"The response was not complete after {seconds} seconds, the longest that one request may take here, and it could not be "
        "continued because 'store' is false. Leave 'store' out, or set 'background' to true, and retrieve it by its id.",
        code="time_limit_exceeded",
    )


def invalid_choice(param: str, value: str, supported: tuple[str, ...], advice: str = "") -> ApiError:
    """400 for a closed set, naming it."""
    return bad_request(
        f"Invalid value: '{value}'. Supported values are: {_listed(supported)}.{advice}", param=param, code="invalid_value"
    )


def invalid_length(param: str, kind: str, length: int, minimum: int, maximum: int) -> ApiError:
    """400 for a string or array of the wrong size; codes such as ``string_above_max_length``."""
    noun = "a string" if kind == "string" else f"an {kind}"
    is_long = length > maximum
    fault, word, bound = ("long", "maximum", maximum) if is_long else ("short", "minimum", minimum)
    return bad_request(
        f"Invalid '{param}': {kind} too {fault}. Expected {noun} with {word} length {bound}, but got {noun} with length "
        f"{length} instead.",
        param=param,
        code=f"{kind}_{'above_max' if is_long else 'below_min'}_length",
    )


def too_many_properties(param: str, count: int, maximum: int) -> ApiError:
    return bad_request(
        f"Invalid '{param}': too many properties. Expected an object with at most {maximum} properties, but got an object with {count} "
        "properties instead.",
        param=param,
        code="object_above_max_properties",
    )


def invalid_pattern(param: str, value: str, pattern: str) -> ApiError:
    return bad_request(
        f"Invalid '{param}': string does not match pattern. Expected a string that matches the pattern '{pattern}', but got '{value}'.",
        param=param,
        code="invalid_value",
    )


def below_minimum(param: str, kind: str, value: float, minimum: float) -> ApiError:
    return bad_request(
        f"Invalid '{param}': {kind} below minimum value. Expected a value >= {minimum}, but got {value} instead.",
        param=param,
        code=f"{kind}_below_min_value",
    )


def above_maximum(param: str, kind: str, value: float, maximum: float) -> ApiError:
    return bad_request(
        f"Invalid '{param}': {kind} above maximum value. Expected a value <= {maximum}, but got {value} instead.",
        param=param,
        code=f"{kind}_above_max_value",
    )


def unparsable_body(reason: str) -> ApiError:
    return bad_request(f"We could not parse the JSON body of your request: {reason}.", code="invalid_json")


def duplicate_item(param: str, item_id: str) -> ApiError:
    return bad_request(f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again.", param=param)


def _listed(words: tuple[str, ...]) -> str:
    quoted = [f"'{word}'" for word in words]
    if len(quoted) <= 2:
        return " and ".join(quoted)
    return f"{', '.join(quoted[:-1])}, and {quoted[-1]}"


def file_too_large(bytes_max: int) -> ApiError:
    return ApiError(413, f"The file is larger than {bytes_max} bytes, the most that one file may have.", code="file_too_large")


def container_file_not_found(file_id: str) -> ApiError:
    return not_found(f"Container file with id '{file_id}' not found.", code="container_file_not_found")


def upload_not_found(upload_id: str) -> ApiError:
    return not_found(f"No such Upload object: {upload_id}", code="upload_not_found")


def skill_not_found(skill_id: str, *, param: str | None = None) -> ApiError:
    return not_found(f"Skill with id '{skill_id}' not found.", param=param, code="skill_not_found")


def skill_version_not_found(skill_id: str, version: str, *, param: str | None = None) -> ApiError:
    return not_found(f"Skill with id '{skill_id}' has no version '{version}'.", param=param, code="skill_version_not_found")


def conversation_not_found(conversation_id: str, *, param: str | None = None) -> ApiError:
    return not_found(f"Conversation with id '{conversation_id}' not found.", param=param, code="conversation_not_found")


def conversation_item_not_found(item_id: str) -> ApiError:
    return not_found(f"Conversation item with id '{item_id}' not found.", code="conversation_item_not_found")


def too_many_container_files(files_max: int) -> ApiError:
    return bad_request(f"A container holds at most {files_max} files.")


def container_files_too_large(bytes_max: int) -> ApiError:
    return bad_request(f"The files of a container hold at most {bytes_max} bytes together. Delete some, or take another container.")


def past_unknown(container_id: str) -> ApiError:
    """How a container's files were is kept for a bounded number of changes, and not of versions that did not keep it."""
    return bad_request(
        f"It is not known any more how the files of the container '{container_id}' were then. Take a later event, or set 'container' "
        "to 'share' for the files as they are now, or to 'none' for a container without files.",
        param="container",
        code="workspace_expired",
    )


def copied_too_often(most: int) -> ApiError:
    return bad_request(
        f"This container is a copy of a copy, {most} times over. Set 'container' to 'share' or to 'none'.",
        param="container",
        code="workspace_copied_too_often",
    )


def container_read_only(container_id: str) -> ApiError:
    return bad_request(
        f"The files of the container '{container_id}' can only be read: it is the workspace of an agent that was started with "
        "'read_only'. Take another container.",
        code="container_read_only",
    )


def too_many_skills(skills_max: int) -> ApiError:
    return bad_request(f"A container has at most {skills_max} skills. Take another container for more.")


def conversation_busy(conversation_id: str) -> ApiError:
    """Too many writers at once: worth a retry, and the SDKs do retry a 409."""
    message = f"Conversation '{conversation_id}' is being changed by too many requests at once. Please retry."
    return ApiError(409, message, code="conversation_locked")


def agent_not_found(agent_id: str, *, param: str | None = None) -> ApiError:
    return not_found(f"Agent with id '{agent_id}' not found.", param=param, code="agent_not_found")


def agent_busy(agent_id: str) -> ApiError:
    """Worth a retry, and the SDKs do retry a 409."""
    return ApiError(409, f"Agent '{agent_id}' is being changed by too many requests at once. Please retry.", code="agent_locked")


def vault_not_found(vault_id: str, *, param: str | None = None) -> ApiError:
    return not_found(f"Vault with id '{vault_id}' not found.", param=param, code="vault_not_found")


def vault_busy(vault_id: str) -> ApiError:
    """Worth a retry, and the SDKs do retry a 409."""
    return ApiError(409, f"Vault '{vault_id}' is being changed by too many requests at once. Please retry.", code="vault_locked")


def credential_not_found(credential_id: str, *, param: str | None = None) -> ApiError:
    return not_found(f"Credential with id '{credential_id}' not found.", param=param, code="credential_not_found")


def credential_busy(credential_id: str) -> ApiError:
    message = f"Credential '{credential_id}' is being changed by too many requests at once. Please retry."
    return ApiError(409, message, code="credential_locked")


def credential_unreadable(credential_id: str) -> ApiError:
    """The deployment's content key is another one, and the older ones are not kept."""
    message = f"This deployment has no key any more that opens the credential '{credential_id}'. Make it anew."
    return bad_request(message, code="credential_unreadable")


def credential_expired(credential_id: str) -> ApiError:
    message = f"The access token of the credential '{credential_id}' is used up, and it has no 'refresh'. Give it another one."
    return bad_request(message, code="credential_expired")


def credential_not_refreshed(credential_id: str, reason: str) -> ApiError:
    message = f"The access token of the credential '{credential_id}' is used up, and could not be refreshed: {reason}."
    return bad_request(message, code="credential_not_refreshed")


def too_many_credentials(credentials_max: int) -> ApiError:
    message = f"A vault has at most {credentials_max} credentials. Delete one, or make another vault."
    return bad_request(message, code="too_many_credentials")


def webhook_endpoint_not_found(endpoint_id: str) -> ApiError:
    return not_found(f"No such webhook endpoint: {endpoint_id}", code="webhook_endpoint_not_found")


def webhook_delivery_not_found(event_id: str) -> ApiError:
    return not_found(f"No delivery of the event '{event_id}' to this endpoint is known.", code="webhook_delivery_not_found")


def too_many_webhook_endpoints(endpoints_max: int) -> ApiError:
    return bad_request(f"There are {endpoints_max} webhook endpoints, as many as there may be. Delete one, or change one.")


def webhook_url_refused(reason: str) -> ApiError:
    return bad_request(f"Events cannot be sent to this 'url': {reason}.", param="url", code="invalid_webhook_url")


def webhook_not_answered(reason: str) -> ApiError:
    """A 4xx, because SDKs would repeat a 5xx and send the event again."""
    return bad_request(f"The endpoint did not take the event: {reason}.", code="webhook_endpoint_unreachable")


def conversation_rewound(conversation_id: str, most: int) -> ApiError:
    return bad_request(
        f"Conversation '{conversation_id}' has been rewound to {most} different places. Fork it without 'rewind'.",
        param="rewind",
    )


def network_unavailable(param: str) -> ApiError:
    return bad_request(
        f"'{param}' asks for a network, and this deployment runs no egress proxy. Use {{'type': 'disabled'}}, or ask the operator "
        "to start one.",
        param=param,
        code="network_unavailable",
    )


def upgrade_required() -> ApiError:
    """426: the address speaks WebSocket on request, and otherwise takes POST only."""
    return ApiError(
        426,
        "This address answers GET with a WebSocket only, and none was asked for or none can pass here. Use POST /v1/responses.",
        code="upgrade_required",
        headers={"upgrade": "websocket"},
    )


def too_many_streams(ids_max: int) -> ApiError:
    return bad_request(
        f"This WebSocket connection has reached its maximum number of distinct stream IDs ({ids_max}). Reuse an existing stream_id or "
        "open a new WebSocket connection.",
        param="stream_id",
        code="websocket_stream_limit_reached",
    )


def context_length_exceeded(window_tokens: int, input_tokens: int) -> UpstreamError:
    """The input cannot fit the model. The response fails with it; before any output that is a 400."""
    return UpstreamError(
        f"Your input exceeds the context window of this model: it takes {window_tokens} tokens, and the input has about "
        f"{input_tokens}. Shorten it, have it compacted by 'context_management', or set 'truncation' to 'auto' to leave out what is "
        "oldest.",
        code="context_length_exceeded",
        status=400,
        param="input",
        is_retryable=False,
    )


def too_long_to_compact(tokens_max: int) -> UpstreamError:
    """Reading it would take too many requests; leaving out a part of it would lose that silently."""
    return UpstreamError(
        f"This conversation is too long to be compacted: notes are written on at most about {tokens_max} tokens. Compact it earlier, "
        "or leave out what is oldest.",
        code="context_length_exceeded",
        status=400,
        param="input",
        is_retryable=False,
    )


def invalid_encrypted_content(param: str) -> ApiError:
    return bad_request(
        f"The content of '{param}' cannot be read: it was sealed by another deployment or for another tenant, or it is damaged. Pass "
        "compaction items on exactly as they came.",
        param=param,
        code="invalid_encrypted_content",
    )


# --- Bodies --------------------------------------------------------------------------------------------------------------------------


def too_many_values(most: int) -> ApiError:
    return bad_request(
        f"The request body holds more than {most} values (fields and elements). Send fewer at once: earlier turns by "
        "'previous_response_id' or 'conversation', long data as a file or as one text.",
        code="too_many_values",
    )


# --- Values --------------------------------------------------------------------------------------------------------------------------


def wrong_id(param: str, value: str, prefix: str) -> ApiError:
    """An id of another kind, if the kind is told by how it begins."""
    return bad_request(
        f"Invalid '{param}': '{value[:80]}'. Expected an ID that begins with '{prefix}'.", param=param, code="invalid_value"
    )


def invalid_base64_image(param: str) -> ApiError:
    return bad_request(
        f"Invalid value for '{param}': a data URL of an image is 'data:image/png;base64,' and base64 that can be decoded.",
        param=param,
        code="invalid_base64_image",
    )


def invalid_json_schema(param: str, name: str, why: str) -> ApiError:
    """Of ``text.format``."""
    return bad_request(f"Invalid schema for response_format '{name}': {why}", param=param, code="invalid_json_schema")


def invalid_function_parameters(param: str, name: str, why: str) -> ApiError:
    """Of a function tool."""
    return bad_request(f"Invalid schema for function '{name}': {why}", param=param, code="invalid_function_parameters")


# --- Budgets -------------------------------------------------------------------------------------------------------------------------


def model_not_budgetable(model: str, otherwise: str) -> ApiError:
    return bad_request(
        f"The price of the model '{model}' is not known, so that no budget in dollars can be kept. Set 'price' in models.toml, "
        f"{otherwise}",
        param="budget.usd",
        code="model_not_budgetable",
    )


def budget_reached(message: str) -> ApiError:
    """429, but the SDKs need not send it again: it takes an operator, or another budget."""
    return ApiError(429, message, type="insufficient_quota", code="budget_reached", headers={"x-should-retry": "false"})


# --- Past responses ------------------------------------------------------------------------------------------------------------------


def archive_too_large(bytes_max: int) -> ApiError:
    return bad_request(
        f"The files of this container have more than the {bytes_max} bytes that fit into one archive. Take them one by one.",
        code="archive_too_large",
    )


def step_not_found(step_id: str) -> ApiError:
    return not_found(
        f"The response has no step '{step_id}' that asked a model. '/steps' lists them; those of type 'model' did.",
        code="step_not_found",
    )


def response_not_ended(response_id: str) -> ApiError:
    return bad_request(f"Response '{response_id}' is still running. Its trace is whole when it has ended.", code="response_not_ended")


# --- Sessions of containers ----------------------------------------------------------------------------------------------------------


def session_not_found(session_id: str) -> ApiError:
    return not_found(f"Session with id '{session_id}' not found.", code="session_not_found")


def session_not_running(session_id: str, why: str) -> ApiError:
    return ApiError(409, f"Session '{session_id}' {why}.", code="session_not_running", headers={"x-should-retry": "false"})


def too_many_sessions(most: int) -> ApiError:
    return ApiError(
        429,
        f"{most} sessions of this container are open, as many as there may be. Close one of them: DELETE /v1/sessions/{{session_id}}.",
        type="rate_limit_error",
        code="too_many_sessions",
        headers={"x-should-retry": "false"},
    )


def session_input_full(session_id: str) -> ApiError:
    return ApiError(
        429,
        f"The program of session '{session_id}' does not read what was typed before. Send it again later.",
        type="rate_limit_error",
        code="session_input_full",
        headers={"retry-after": "1"},
    )


def sandbox_unavailable(error: SandboxError) -> ApiError:
    """The container has no sandbox, and can have none now."""
    if isinstance(error, TenantCapacity):
        return ApiError(429, error.message, type="rate_limit_error", code="too_many_sandboxes", headers={"x-should-retry": "false"})
    return container_unavailable(error.message)


def container_unavailable(message: str) -> ApiError:
    return ApiError(503, message, type="server_error", code="container_unavailable", headers={"retry-after": "5"})


MISDIRECTED: Final = 421
"""A function elsewhere answers the request: its caller asks there (``api/inside_relay.py``), and no client sees it."""


def container_elsewhere(container_id: str) -> ApiError:
    return ApiError(MISDIRECTED, f"Container '{container_id}' is reached from another function.", code="container_elsewhere")


# --- Stored bytes --------------------------------------------------------------------------------------------------------------------


def storage_limit_reached(used: int, most: int) -> ApiError:
    """429, but the SDKs need not send it again: it takes a deletion, or an operator."""
    return ApiError(
        429,
        f"Your files, containers and vector stores hold {used} of {most} bytes, and this does not fit beside them. Delete some of them "
        "(GET /v1/me tells which kind holds how much), or ask the operator for more (MOORAGE_STORED_BYTES_MAX).",
        type="insufficient_quota",
        code=STORAGE_LIMIT,
        headers={"x-should-retry": "false"},
    )


def storage_busy() -> ApiError:
    return ApiError(
        503,
        "Too much is being stored for you at once to count it. Please retry.",
        type="server_error",
        code="storage_busy",
        headers={"retry-after": "1"},
    )


# --- Vector stores -------------------------------------------------------------------------------------------------------------------


def vector_store_not_found(store_id: str, *, param: str | None = None) -> ApiError:
    return not_found(f"Vector store with id '{store_id}' not found.", param=param, code="vector_store_not_found")


def vector_store_expired(store_id: str, *, param: str | None = None) -> ApiError:
    return bad_request(
        f"Vector store '{store_id}' has expired, and its files are no longer in it. Make another one, with a longer 'expires_after'.",
        param=param,
        code="vector_store_expired",
    )


def vector_store_file_not_found(file_id: str, store_id: str) -> ApiError:
    return not_found(f"No file found with id '{file_id}' in vector store '{store_id}'.", code="vector_store_file_not_found")


def vector_batch_not_found(batch_id: str, store_id: str) -> ApiError:
    return not_found(f"No file batch found with id '{batch_id}' in vector store '{store_id}'.", code="vector_batch_not_found")


def too_many_vector_stores(stores_max: int) -> ApiError:
    return bad_request(f"You have {stores_max} vector stores, the most there may be. Delete one that is not needed any more.")


def too_many_vector_store_files(files_max: int) -> ApiError:
    return bad_request(f"A vector store holds at most {files_max} files. Remove some, or use another store.", code="too_many_files")


def vector_store_full(bytes_max: int) -> ApiError:
    return bad_request(
        f"The vector store takes {bytes_max} bytes or more, the most that one may. Remove files, or use another store.",
        code="vector_store_full",
    )


def vector_store_busy(store_id: str) -> ApiError:
    message = f"Vector store '{store_id}' is being changed by too many requests at once. Please retry."
    return ApiError(409, message, code="vector_store_busy")
