"""Which model answers to which name."""

import re
from pathlib import Path
from typing import Any

import pytest
from moorage.errors import ApiError, SettingsConflict
from moorage.model.anthropic_messages import AnthropicMessages
from moorage.model.bedrock_converse import BedrockConverse
from moorage.model.catalog import ModelCatalog, ollama_url, probe_ollama
from moorage.model.chat_completions import ChatCompletions
from moorage.model.chat_messages import GENERIC, MessageStyle
from moorage.model.chat_templates import FAMILIES, Family
from moorage.model.compaction import CompactionSettings
from moorage.model.demo import Demo
from moorage.model.openai_responses import COMPUTERS, NATIVE_TO_OPENAI, OpenAIResponses
from moorage.net.sigv4 import AwsAuth
from moorage.net.transport import UpstreamTransport

from tests.upstream import MockUpstream

FILE = """
default = "house"

[[models]]
name = "gpt-*"
provider = "openai_responses"
key = "env:MY_KEY"
context_window_tokens = 400_000
price = { input = 1.25, cached_input = 0.125, output = 10 }

[[models]]
name = "gpt-tiny"
provider = "demo"

[[models]]
name = "house"
aliases = ["gpt-4o-mini", "fast"]
provider = "chat_completions"
base_url = "http://127.0.0.1:8000/v1/"
upstream_model = "qwen3-32b"

[[models]]
name = "bedrock/*"
provider = "openai_responses"
base_url = "https://bedrock-runtime.eu-north-1.amazonaws.com/openai/v1"
upstream_model = "us.openai.*"
auth = "sigv4"
region = "eu-north-1"
"""


def loaded(text: str = FILE, **environ: str) -> ModelCatalog:
    return ModelCatalog.load(text, {"MY_KEY": "sk-mine"} | environ)


RESOLVED: dict[str, tuple[str | None, tuple[str, str, str]]] = {
    "a pattern": ("gpt-6", ("gpt-6", "openai_responses", "gpt-6")),
    "an exact name before a pattern": ("gpt-tiny", ("gpt-tiny", "demo", "gpt-tiny")),
    "an alias before a pattern": ("gpt-4o-mini", ("gpt-4o-mini", "chat_completions", "qwen3-32b")),
    "an alias": ("fast", ("fast", "chat_completions", "qwen3-32b")),
    "a part of the name": ("bedrock/*", ("bedrock/*", "openai_responses", "us.openai.bedrock/*")),
    "no name": (None, ("house", "chat_completions", "qwen3-32b")),
    "the scripted model, which nobody lists": ("demo", ("demo", "demo", "demo")),
}


@pytest.mark.parametrize(("name", "found"), RESOLVED.values(), ids=RESOLVED.keys())
def test_a_name_finds_its_model(name: str | None, found: tuple[str, str, str]) -> None:
    entry = loaded().resolve(name)
    assert (entry.name, entry.provider_kind, entry.upstream_model) == found


def test_an_unknown_name_is_the_apis_error() -> None:
    with pytest.raises(ApiError) as raised:
        loaded().resolve("claude-5")
    assert (raised.value.status, raised.value.code) == (404, "model_not_found")


def test_what_the_file_says_of_a_model_is_on_its_entry() -> None:
    entry = loaded().resolve("gpt-6")
    assert entry.context_window_tokens == 400_000
    assert entry.price is not None
    assert (entry.price.input, entry.price.cached_input, entry.price.output) == (1.25, 0.125, 10)


COMPACTIONS = """
[compaction]
prompt = "Keep the figures."
keep_recent_items = 4

[[models]]
name = "large"
provider = "demo"
compaction = { model = "small", keep_recent_items = 0 }

[[models]]
name = "small"
provider = "demo"

[[models]]
name = "short"
provider = "demo"
compaction = { strategy = "truncate" }
"""


def test_a_model_is_compacted_as_its_entry_says_and_otherwise_as_the_file_does() -> None:
    catalog = ModelCatalog.load(COMPACTIONS, {})
    assert {entry.name: entry.compaction for entry in catalog.entries} == {
        "large": CompactionSettings("llm", "Keep the figures.", 0, "small"),
        "small": CompactionSettings("llm", "Keep the figures.", 4),
        "short": CompactionSettings("truncate", "Keep the figures.", 4),
    }


def test_a_file_without_models_says_how_the_detected_one_is_compacted() -> None:
    catalog = ModelCatalog.load('[compaction]\nstrategy = "truncate"\n', {"OPENAI_API_KEY": "k"})
    assert catalog.resolve("gpt-6").compaction == CompactionSettings("truncate")


TWO_KEYS = """
default = "here"

[[models]]
name = "here"
provider = "demo"

[[models]]
name = "elsewhere"
aliases = ["far"]
provider = "openai_responses"
key = "env:NOPE"
"""


def test_a_model_whose_key_is_not_set_leaves_the_others_their_start() -> None:
    catalog = ModelCatalog.load(TWO_KEYS, {})
    assert catalog.notices == ("models.toml, model 'elsewhere': key refers to the environment variable NOPE, which is not set.",)
    assert [model["id"] for model in catalog.listing()] == ["here"]
    assert catalog.resolve(None).name == "here"
    for name in ("elsewhere", "far"):
        with pytest.raises(ApiError) as raised:
            catalog.resolve(name)
        assert (raised.value.status, raised.value.code) == (404, "model_not_found")
        assert "has no key" in raised.value.message
        assert "NOPE" not in raised.value.message, "clients need not know what the operator's variables are called"


def test_a_key_of_moorage_itself_is_no_key_for_a_models_server() -> None:
    said = (
        "models.toml, model 'elsewhere': key refers to the environment variable NOPE, which holds a key of moorage itself "
        "(sk-moorage-...) and so counts as not set."
    )
    assert ModelCatalog.load(TWO_KEYS, {"NOPE": "sk-moorage-x"}).notices == (said,)
    with pytest.raises(SettingsConflict, match="which holds a key of moorage itself"):
        ModelCatalog.load('[web_search]\nkind = "brave"\nkey = "env:NOPE"\n', {"NOPE": "sk-moorage-x"})


def test_with_their_keys_all_models_are_there() -> None:
    catalog = ModelCatalog.load(TWO_KEYS, {"NOPE": "sk"})
    assert (catalog.notices, catalog.resolve("far").upstream_model) == ((), "far")


def test_a_model_that_writes_notes_must_have_its_key() -> None:
    with pytest.raises(SettingsConflict, match="model 'elsewhere': key refers to the environment variable NOPE"):
        ModelCatalog.load(TWO_KEYS + '[compaction]\nmodel = "elsewhere"\n', {})


ASKED: dict[str, tuple[dict[str, Any], CompactionSettings]] = {
    "nothing": ({"type": "compaction"}, CompactionSettings("truncate", None, 4, "small")),
    "a prompt, which wants notes": ({"prompt": "Keep it."}, CompactionSettings("llm", "Keep it.", 4, "small")),
    "all of it": (
        {"strategy": "llm", "prompt": "Keep it.", "keep_recent_items": 0},
        CompactionSettings("llm", "Keep it.", 0, "small"),
    ),
}


@pytest.mark.parametrize(("entry", "wanted"), ASKED.values(), ids=ASKED.keys())
def test_a_request_says_how_it_is_compacted_on_top_of_that(entry: dict[str, Any], wanted: CompactionSettings) -> None:
    assert CompactionSettings("truncate", None, 4, "small").asked(entry) == wanted


def test_the_list_names_every_exact_name_and_alias() -> None:
    assert [model["id"] for model in loaded().listing()] == ["house", "gpt-tiny", "gpt-4o-mini", "fast"]
    assert loaded().listing()[0] == {"id": "house", "object": "model", "created": 0, "owned_by": "moorage"}


WRONG: dict[str, tuple[str, str]] = {
    "no TOML": ("[[models]\n", "models.toml is not TOML: "),
    "an unknown provider": ("[[models]]\nname='a'\nprovider='x'\n", "models.toml is wrong at 'models.0.provider': "),
    "a team at the provider": (
        "[[models]]\nname='a'\nprovider='openai_responses'\nmulti_agent='native'\n",
        "models.toml is wrong at 'models.0.multi_agent': teams run here for every model, and none is passed on to its provider: ",
    ),
    "an unknown field": (
        "[[models]]\nname='a'\nprovider='demo'\nurl='x'\n",
        "models.toml is wrong at 'models.0.url': there is no field of this name.",
    ),
    "a mistyped field": (
        "[[models]]\nname='a'\nprovider='demo'\nbase_ur='x'\n",
        "models.toml is wrong at 'models.0.base_ur': there is no field of this name; base_url is.",
    ),
    "a mistyped table": ("[[model]]\nname='a'\n", "models.toml is wrong at 'model': there is no field of this name; models is."),
    "a list that is none": ("models=3\n", "models.toml is wrong at 'models': it is a list of tables, each under its name in double"),
    "one name twice": (
        "[[models]]\nname='a'\nprovider='demo'\n[[models]]\nname='a'\nprovider='demo'\n",
        "models.toml: two models have the name 'a', and the second would never be asked.",
    ),
    "a default without models": ("default='a'\n", "models.toml: default is 'a', but the file names no model: a table [[models]] does."),
    "no name": ("[[models]]\nprovider='demo'\n", "models.toml is wrong at 'models.0.name': "),
    "a key instead of a reference": (
        "[[models]]\nname='a'\nprovider='demo'\nkey='sk-123'\n",
        "models.toml, model 'a': key must be a reference, 'env:NAME', 'ssm:/path' or 'secretsmanager:/name', never the key itself.",
    ),
    "a key that is not set": (
        "[[models]]\nname='a'\nprovider='demo'\nkey='env:NOPE'\n",
        "models.toml, model 'a': key refers to the environment variable NOPE, which is not set.",
    ),
    "a secret off AWS": (
        "[[models]]\nname='a'\nprovider='demo'\nkey='secretsmanager:/k'\n",
        "models.toml, model 'a': key refers to Secrets Manager (/k), which can be read only on AWS; use env:NAME here.",
    ),
    "a secret by half an ARN": (
        "[[models]]\nname='a'\nprovider='demo'\nkey='secretsmanager:arn:aws:secretsmanager:us-east-1:111122223333:secret:k'\n",
        "models.toml, model 'a': key refers to a secret by its name, or by its whole ARN, which ends with six characters.",
    ),
    "a guardrail of another provider": (
        "[[models]]\nname='a'\nprovider='demo'\nguardrail='abc123:1'\n",
        "models.toml, model 'a': guardrail belongs to the provider bedrock_converse: leave it out.",
    ),
    "a guardrail without a version": (
        "[[models]]\nname='a'\nprovider='bedrock_converse'\nregion='eu-west-1'\nguardrail='abc123'\n",
        "models.toml, model 'a': guardrail is 'id:version' or 'arn:version', such as",
    ),
    "an SSM key off AWS": ("[[models]]\nname='a'\nprovider='demo'\nkey='ssm:/k'\n", "models.toml, model 'a': key refers to SSM (/k)"),
    "no address": ("[[models]]\nname='a'\nprovider='chat_completions'\n", "models.toml, model 'a': chat_completions needs a base_url"),
    "no URL": (
        "[[models]]\nname='a'\nprovider='chat_completions'\nbase_url='localhost:8000'\n",
        "models.toml, model 'a': base_url 'localhost:8000' is not an http or https URL.",
    ),
    "a prompt for notes that nobody writes": (
        "[compaction]\nstrategy='truncate'\nprompt='Keep it.'\n",
        "models.toml is wrong at 'compaction': Value error, nobody writes notes under the strategy 'truncate'",
    ),
    "too many items to keep": (
        "[[models]]\nname='a'\nprovider='demo'\ncompaction={keep_recent_items=1000}\n",
        "models.toml is wrong at 'models.0.compaction.keep_recent_items': ",
    ),
    "notes of a model that is not there": (
        "[[models]]\nname='a'\nprovider='demo'\ncompaction={model='b'}\n",
        "models.toml: compactions want notes of 'b', but no model there has this name.",
    ),
    "only patterns": ("[[models]]\nname='a*'\nprovider='demo'\n", "models.toml holds only patterns: name one that they match"),
    "a default that is not there": (
        "default='b'\n[[models]]\nname='a'\nprovider='demo'\n",
        "models.toml: default is 'b', but no model there has this name.",
    ),
}


@pytest.mark.parametrize(("text", "sentence"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_file_is_one_clear_sentence(text: str, sentence: str) -> None:
    with pytest.raises(SettingsConflict) as raised:
        ModelCatalog.load(text, {})
    assert str(raised.value).startswith(sentence)
    assert "sk-123" not in str(raised.value)


def test_the_repositorys_own_file_configures_nothing() -> None:
    path = Path(__file__).parents[3] / "models.toml"
    assert ModelCatalog.load(path, {}).resolve(None).provider_kind == "demo"
    examples = "\n".join(line.removeprefix("# ") for line in path.read_text().splitlines()[3:])
    assert loaded(examples, OPENAI_API_KEY="sk-x").resolve("gpt-6").provider_kind == "openai_responses"


def test_a_missing_file_configures_nothing(tmp_path: Path) -> None:
    assert ModelCatalog.load(tmp_path / "none.toml", {}).default_model == "demo"


DETECTED: dict[str, tuple[dict[str, str], list[str], str]] = {
    "nothing": (
        {},
        [],
        "'demo', the scripted demo model, offline, because no model is configured: neither models.toml nor "
        "MOORAGE_UPSTREAM_URL, OPENAI_API_KEY or ANTHROPIC_API_KEY names one.",
    ),
    "an upstream first": (
        {"MOORAGE_UPSTREAM_URL": "http://127.0.0.1:8000/v1", "MOORAGE_UPSTREAM_MODEL": "qwen", "OPENAI_API_KEY": "k"},
        ["llama"],
        "'qwen' at 127.0.0.1:8000, because MOORAGE_UPSTREAM_URL is set.",
    ),
    "then OpenAI": (
        {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"},
        ["llama"],
        "'gpt-5.5' at api.openai.com, because OPENAI_API_KEY is set.",
    ),
    "another model of OpenAI's": (
        {"OPENAI_API_KEY": "k", "MOORAGE_UPSTREAM_MODEL": "gpt-9"},
        [],
        "'gpt-9' at api.openai.com, because OPENAI_API_KEY is set.",
    ),
    "then Anthropic": (
        {"ANTHROPIC_API_KEY": "k"},
        ["llama"],
        "'claude-sonnet-5' at api.anthropic.com, because ANTHROPIC_API_KEY is set.",
    ),
    "then Ollama": ({}, ["llama3:8b"], "'llama3:8b' at 127.0.0.1:11434, because an Ollama runs on this machine."),
    "an Ollama elsewhere": (
        {"OLLAMA_HOST": "host.docker.internal"},
        ["llama3:8b"],
        "'llama3:8b' at host.docker.internal:11434, because OLLAMA_HOST names an Ollama.",
    ),
    "Bedrock only when it is named": (
        {"MOORAGE_UPSTREAM_KIND": "bedrock_converse", "MOORAGE_UPSTREAM_MODEL": "us.amazon.nova-2", "AWS_REGION": "eu-west-1"},
        [],
        "'us.amazon.nova-2' at Bedrock, because MOORAGE_UPSTREAM_KIND is set.",
    ),
    "AWS credentials alone say nothing": (
        {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "eu-west-1"},
        ["llama"],
        "'llama' at 127.0.0.1:11434, because an Ollama runs on this machine.",
    ),
    "a key of ours is not OpenAI's": (
        {"OPENAI_API_KEY": "sk-ours", "OPENAI_BASE_URL": "http://127.0.0.1:8080/v1"},
        ["llama"],
        "'llama' at 127.0.0.1:11434, because an Ollama runs on this machine.",
    ),
    "nor is one that moorage has made, wherever the shell points": (
        {"OPENAI_API_KEY": "sk-moorage-x"},
        [],
        "'demo', the scripted demo model, offline, because no model is configured: neither models.toml nor MOORAGE_UPSTREAM_URL, "
        "OPENAI_API_KEY or ANTHROPIC_API_KEY names one, and OPENAI_API_KEY holds a key of moorage itself (sk-moorage-...) and so "
        "counts as not set.",
    ),
    "nor is it Anthropic's": (
        {"ANTHROPIC_API_KEY": "sk-moorage-x"},
        ["llama"],
        "'llama' at 127.0.0.1:11434, because an Ollama runs on this machine.",
    ),
}


@pytest.mark.parametrize(("environ", "ollama", "sentence"), DETECTED.values(), ids=DETECTED.keys())
def test_without_a_file_the_environment_decides_and_says_why(environ: dict[str, str], ollama: list[str], sentence: str) -> None:
    catalog = ModelCatalog.load("", environ | {"MOORAGE_OLLAMA_MODELS": " ".join(ollama)})
    assert catalog.describe_default() == sentence
    assert catalog.resolve("any-name-at-all").provider_kind == catalog.resolve(None).provider_kind
    assert catalog.resolve("demo").provider_kind == "demo"


@pytest.mark.parametrize(
    ("said", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:9999", "http://127.0.0.1:9999"),
        ("gpu:11435", "http://gpu:11435"),
        ("https://ollama.test", "https://ollama.test:443"),
        ("http://[::1]:1", "http://[::1]:1"),
    ],
)
def test_ollama_is_looked_for_where_its_own_variable_says(said: str, url: str) -> None:
    assert ollama_url({"OLLAMA_HOST": said}) == url


@pytest.mark.parametrize("said", ["gpu:port", "gpu:99999", ":11434", "unix:///run/ollama"])
def test_an_address_that_no_ollama_has_is_refused(said: str) -> None:
    with pytest.raises(SettingsConflict, match="OLLAMA_HOST is"):
        ollama_url({"OLLAMA_HOST": said})


def test_an_ollama_is_asked_for_its_models() -> None:
    with MockUpstream() as upstream:
        url = upstream.url.removesuffix("/v1")
        assert probe_ollama(url) == ["mock:8b"]
    assert probe_ollama(url) == []


def test_every_example_of_the_guide_can_be_loaded() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "models.md").read_text()
    examples = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    assert len(examples) > 3
    for example in examples:
        environ = dict.fromkeys(re.findall(r"env:(\w+)", example), "key")
        ModelCatalog.load(example, environ, secret=lambda name: "secret").resolve(None)


BAD_ENVIRONMENTS: dict[str, tuple[dict[str, str], str]] = {
    "an unknown kind": (
        {"MOORAGE_UPSTREAM_URL": "http://a", "MOORAGE_UPSTREAM_KIND": "grpc"},
        "MOORAGE_UPSTREAM_KIND is 'grpc'; it takes openai_responses, chat_completions, ",
    ),
    "a key that is moorage's own": (
        {"MOORAGE_UPSTREAM_URL": "http://a/v1", "MOORAGE_UPSTREAM_KEY": "sk-moorage-x"},
        "MOORAGE_UPSTREAM_KEY holds a key of moorage itself (sk-moorage-...) and so counts as not set; it takes the key of the server",
    ),
    "no URL": ({"MOORAGE_UPSTREAM_URL": "localhost:11434"}, "MOORAGE_UPSTREAM_URL is 'localhost:11434'; it takes an http or https URL"),
    "a server without an address": (
        {"MOORAGE_UPSTREAM_KIND": "chat_completions", "OPENAI_API_KEY": "sk-1"},
        "MOORAGE_UPSTREAM_KIND is 'chat_completions'; it needs MOORAGE_UPSTREAM_URL",
    ),
    "Bedrock without a model": (
        {"MOORAGE_UPSTREAM_KIND": "bedrock_converse"},
        "MOORAGE_UPSTREAM_MODEL is not set; bedrock_converse needs",
    ),
}


@pytest.mark.parametrize(("environ", "sentence"), BAD_ENVIRONMENTS.values(), ids=BAD_ENVIRONMENTS.keys())
def test_a_wrong_environment_is_one_clear_sentence(environ: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsConflict) as raised:
        ModelCatalog.load("", environ)
    assert str(raised.value).startswith(sentence)


# --- providers ----------------------------------------------------------------------------------------------------------------------


def provider(text: str, model: str, **environ: str) -> Any:
    catalog = ModelCatalog.load(text, environ, secret=lambda name: f"secret of {name}")
    return catalog.provider(catalog.resolve(model), UpstreamTransport())


def entry(kind: str, **fields: Any) -> str:
    lines = [f"{key} = {value!r}" if not isinstance(value, bool) else f"{key} = {str(value).lower()}" for key, value in fields.items()]
    return "\n".join(["[[models]]", "name = 'm'", f"provider = '{kind}'", *lines, ""])


def test_each_kind_of_entry_makes_its_provider() -> None:
    openai = provider(entry("openai_responses", key="env:K", upstream_model="gpt-6"), "m", K="sk-1")
    assert isinstance(openai, OpenAIResponses)
    assert (openai.upstream.url, openai.upstream.headers) == ("https://api.openai.com/v1/responses", {"authorization": "Bearer sk-1"})
    assert (openai.native_tools, openai.asks_encrypted_reasoning) == (NATIVE_TO_OPENAI, True)

    chat = provider(entry("chat_completions", base_url="http://127.0.0.1:1/v1/"), "m")
    assert isinstance(chat, ChatCompletions)
    assert (chat.upstream.url, dict(chat.upstream.headers)) == ("http://127.0.0.1:1/v1/chat/completions", {})
    assert (chat.style, chat.native_tools) == (GENERIC, frozenset({"function"}))

    claude = provider(entry("anthropic_messages", key="ssm:/keys/a", max_output_tokens=64_000), "m")
    assert isinstance(claude, AnthropicMessages)
    assert claude.upstream.url == "https://api.anthropic.com/v1/messages"
    assert claude.upstream.headers == {"anthropic-version": "2023-06-01", "x-api-key": "secret of ssm:/keys/a"}
    assert claude.output_tokens_max == 64_000

    nova = provider(entry("bedrock_converse", region="eu-west-1"), "m")
    assert isinstance(nova, BedrockConverse)
    assert isinstance(nova.upstream.auth, AwsAuth)
    assert (nova.upstream.url, nova.upstream.auth.service, nova.upstream.auth.region) == (
        "https://bedrock-runtime.eu-west-1.amazonaws.com",
        "bedrock",
        "eu-west-1",
    )
    assert isinstance(provider(entry("demo"), "m"), Demo)


def test_bedrock_takes_a_bearer_key_too() -> None:
    nova = provider(
        entry("bedrock_converse", region="eu-west-1", key="env:AWS_BEARER_TOKEN_BEDROCK"), "m", AWS_BEARER_TOKEN_BEDROCK="b"
    )
    assert (nova.upstream.auth, nova.upstream.headers) == (None, {"authorization": "Bearer b"})


def test_bedrocks_own_responses_api_is_signed() -> None:
    catalog = loaded()
    served: Any = catalog.provider(catalog.resolve("bedrock/gpt-oss"), UpstreamTransport())
    assert served.upstream.url == "https://bedrock-runtime.eu-north-1.amazonaws.com/openai/v1/responses"
    assert (served.upstream.auth.service, served.upstream.auth.region) == ("bedrock", "eu-north-1")
    assert served.native_tools == frozenset({"function"})


@pytest.mark.parametrize(
    ("text", "environ"),
    [
        (entry("bedrock_converse"), {}),
        (entry("bedrock_converse", base_url="http://127.0.0.1:1"), {}),
        (entry("openai_responses", auth="sigv4", base_url="http://127.0.0.1:1"), {}),
        ("", {"MOORAGE_UPSTREAM_KIND": "bedrock_converse", "MOORAGE_UPSTREAM_MODEL": "m"}),
    ],
)
def test_a_region_must_be_known_before_anybody_asks(text: str, environ: dict[str, str]) -> None:
    """The API would answer each request with an internal error."""
    with pytest.raises(SettingsConflict, match="needs a region"):
        ModelCatalog.load(text, environ)


def test_options_of_an_entry_reach_the_provider() -> None:
    options = {"dialect": "openai", "replays_reasoning": True, "files": True, "template": "gemma", "starts_thinking": True}
    text = entry("chat_completions", base_url="http://127.0.0.1:1", idle_seconds=7.5, **options)
    chat = provider(text + "headers = { x-team = 'a' }\nnative_tools = ['custom']\n", "m")
    style = MessageStyle("openai", FAMILIES["gemma"], replays_reasoning=True, takes_files=True)
    assert (chat.style, chat.starts_thinking, chat.upstream.idle_seconds) == (style, True, 7.5)
    assert (chat.upstream.headers, chat.native_tools) == ({"x-team": "a"}, frozenset({"function", "custom"}))


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("qwen3-32b", "generic"),
        ("mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo"),
        ("Ministral-3-14B", "ministral"),
        ("mixtral:8x7b", "mistral"),
        ("codestral:22b", "mistral"),
        ("gemma2:9b", "gemma"),
        ("google/gemma-3-27b-it", "gemma"),
        ("gemma-4-31b", "generic"),
        ("meta-llama/Llama-3.3-70B-Instruct", "text-or-one-call"),
        ("deepseek-r1:14b", "no-tools"),
        ("DeepSeek-R1-0528", "generic"),
    ],
)
def test_an_upstreams_name_tells_its_chat_template(model: str, family: Family) -> None:
    chat = provider(entry("chat_completions", base_url="http://127.0.0.1:1", upstream_model=model), "m")
    assert chat.style == MessageStyle(template=FAMILIES[family])
    told = provider(entry("chat_completions", base_url="http://127.0.0.1:1", upstream_model=model, template="no-tools"), "m")
    assert told.style == MessageStyle(template=FAMILIES["no-tools"])


@pytest.mark.parametrize(("model", "asks"), [("gpt-4o", False), ("gpt-4.1-mini", False), ("gpt-5.5", True), ("o3", True)])
def test_models_that_do_not_reason_are_not_asked_for_reasoning(model: str, asks: bool) -> None:
    assert provider(entry("openai_responses", upstream_model=model), "m").asks_encrypted_reasoning is asks


NATIVES: dict[str, tuple[set[str], set[str]]] = {
    "gpt-4o": ({"function", "web_search", "mcp"}, {"custom", "shell"}),
    "o3": ({"function", "web_search", "mcp"}, {"custom", "shell"}),
    "gpt-5-mini": ({"custom"}, {"shell", "apply_patch"}),
    "gpt-5.1-codex": ({"custom", "shell", "apply_patch"}, {"namespace", "tool_search"}),
    "gpt-5.5": ({"shell", "namespace", "tool_search", "additional_tools", "computer"}, {"local_shell", "code_interpreter"}),
    "gpt-6": ({"shell", "namespace"}, {"local_shell", "code_interpreter"}),
    "codex-mini-latest": ({"local_shell"}, {"shell"}),
    "computer-use-preview": ({"computer_use_preview"}, {"shell"}),
}


@pytest.mark.parametrize("model", NATIVES)
def test_a_model_of_openais_is_given_the_tools_of_its_generation(model: str) -> None:
    known, unknown = NATIVES[model]
    natives = provider(entry("openai_responses", upstream_model=model), "m").native_tools
    assert known <= natives
    assert not unknown & natives
    assert "function" in natives


@pytest.mark.parametrize(
    ("kind", "fields", "view", "is_native"),
    [
        ("openai_responses", {"upstream_model": "gpt-5.5"}, "pixels", True),
        ("openai_responses", {"upstream_model": "gpt-4o"}, "pixels", False),
        ("openai_responses", {"upstream_model": "gpt-5.5", "computer": "refs"}, "refs", False),
        ("openai_responses", {"upstream_model": "mine", "computer": "native"}, "native", True),
        ("anthropic_messages", {"upstream_model": "claude-sonnet-5"}, "pixels", False),
        ("chat_completions", {"base_url": "http://127.0.0.1:1/v1", "upstream_model": "gemini-3"}, "grid1000", False),
        ("chat_completions", {"base_url": "http://127.0.0.1:1/v1", "upstream_model": "Qwen3-VL-8B"}, "grid1000", False),
        ("chat_completions", {"base_url": "http://127.0.0.1:1/v1", "upstream_model": "llama"}, "refs", False),
        ("chat_completions", {"base_url": "http://127.0.0.1:1/v1", "upstream_model": "llama", "computer": "text"}, "text", False),
    ],
)
def test_a_model_uses_a_computer_as_its_entry_or_its_name_says(kind: str, fields: dict[str, str], view: str, is_native: bool) -> None:
    catalog = ModelCatalog.load(entry(kind, **fields), {})
    found = catalog.resolve("m")
    natives = catalog.provider(found, UpstreamTransport()).native_tools
    assert (found.view, bool(natives & COMPUTERS)) == (view, is_native)


def test_the_demo_model_keeps_its_count_of_failures_and_its_pace() -> None:
    catalog = ModelCatalog.load("", {"MOORAGE_DEMO_DELTA_MS": "4"})
    transport = UpstreamTransport()
    first, second = (catalog.provider(catalog.resolve("demo"), transport) for _ in range(2))
    assert first is second
    assert isinstance(first, Demo)
    assert first.delta_seconds == 0.004
