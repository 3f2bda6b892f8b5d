"""Documents that a client attaches for a model whose server takes none: their text reaches the model, whatever way they come in."""

import base64
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.stack import Stack
from tests.unit.sandbox import documents
from tests.upstream import MockUpstream, called, said

FILES: dict[str, tuple[bytes, str]] = {
    "tides.pdf": (documents.pdf("Spring tides come with new moon."), "Spring tides come with new moon."),
    "letter.docx": (documents.docx("Dear Ann,", "the harbour is closed."), "Dear Ann,\nthe harbour is closed."),
    "slides.pptx": (documents.pptx("Low water", "High water"), "Low water\n\nHigh water"),
    "sales.xlsx": (documents.xlsx(("north", "12")), "Sales\nnorth\t12"),
    "old.txt": ("Grüße".encode("utf-16-le"), "Grüße"),
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[MockUpstream]:
    with MockUpstream() as running:
        yield running


class _Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content = FILES[self.path.lstrip("/")][0]
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing is said."""


@pytest.fixture(scope="module")
def pages() -> Iterator[http.server.ThreadingHTTPServer]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, upstream: MockUpstream, pages: http.server.ThreadingHTTPServer) -> Iterator[Stack]:
    """A stack with two models: one with a small window, as local servers have."""
    state_dir = Path(tmp_path_factory.mktemp("attachments"))
    models = state_dir / "models.toml"
    models.write_text(
        "".join(
            f'[[models]]\nname = "{name}"\nprovider = "chat_completions"\nbase_url = "{upstream.url}"\n{more}\n'
            for name, more in {"local": "", "small": "context_window_tokens = 4096"}.items()
        )
    )
    opened = {"MOORAGE_FETCH_ALLOWED_NETWORKS": "127.0.0.0/8", "MOORAGE_EGRESS_PORTS": str(pages.server_port)}
    running = Stack(state_dir, {"MOORAGE_MODELS_FILE": str(models), **opened}).start()
    yield running
    assert running.stop() == 0


def data_url(content: bytes) -> str:
    return "data:application/octet-stream;base64," + base64.b64encode(content).decode()


def shown(upstream: MockUpstream) -> Any:
    """What the model was last told."""
    return upstream.requests[-1].body["messages"][-1]["content"]


def attached(name: str) -> str:
    return f"[File {name}]\n{FILES[name][1]}\n[End of {name}]"


@pytest.mark.parametrize("name", FILES)
def test_a_document_reaches_a_model_whose_server_takes_no_files_as_text(local: Stack, upstream: MockUpstream, name: str) -> None:
    upstream.plays(said("Read."))
    parts: Any = [
        {"type": "input_file", "filename": name, "file_data": data_url(FILES[name][0])},
        {"type": "input_text", "text": "Sum up."},
    ]
    response = local.client().responses.create(model="local", input=[{"role": "user", "content": parts}])
    assert (response.output_text, shown(upstream)) == ("Read.", f"{attached(name)}\n\nSum up.")


def test_it_may_come_by_its_id_by_its_url_and_in_a_later_turn(
    local: Stack, upstream: MockUpstream, pages: http.server.ThreadingHTTPServer
) -> None:
    client = local.client()
    stored = client.files.create(file=("tides.pdf", FILES["tides.pdf"][0]), purpose="user_data")
    parts: Any = [
        {"type": "input_file", "file_id": stored.id},
        {"type": "input_file", "file_url": f"http://localhost:{pages.server_port}/letter.docx"},
    ]
    upstream.plays(said("One."), said("Two."))
    first = client.responses.create(model="local", input=[{"role": "user", "content": parts}])
    before = shown(upstream)
    assert before == f"{attached('tides.pdf')}\n\n{attached('letter.docx')}"
    client.responses.create(model="local", input="And now?", previous_response_id=first.id)
    assert [message["content"] for message in upstream.requests[-1].body["messages"]] == [before, "One.", "And now?"]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_chat_completion_takes_it_too(local: Stack, upstream: MockUpstream, is_streamed: bool) -> None:
    upstream.plays(said("Read."))
    content: Any = [{"type": "file", "file": {"filename": "tides.pdf", "file_data": data_url(FILES["tides.pdf"][0])}}]
    answer: Any = local.client().chat.completions.create(
        model="local", messages=[{"role": "user", "content": content}], stream=is_streamed
    )
    texts = (
        [chunk.choices[0].delta.content for chunk in answer if chunk.choices] if is_streamed else [answer.choices[0].message.content]
    )
    assert ("".join(text or "" for text in texts), shown(upstream)) == ("Read.", attached("tides.pdf"))


def test_a_tool_may_give_it_back(local: Stack, upstream: MockUpstream) -> None:
    client = local.client()
    tools: Any = [{"type": "function", "name": "fetch", "parameters": {"type": "object", "properties": {}}}]
    upstream.plays(called("fetch"), said("Read."))
    first = client.responses.create(model="local", input="Fetch it.", tools=tools)
    output: Any = [{"type": "input_file", "filename": "tides.pdf", "file_data": data_url(FILES["tides.pdf"][0])}]
    result: Any = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": output}  # type: ignore[union-attr]
    second = client.responses.create(model="local", input=[result], tools=tools, previous_response_id=first.id)
    assert (second.output_text, upstream.requests[-1].body["messages"][-1]["content"]) == ("Read.", attached("tides.pdf"))


def test_a_long_one_is_shown_from_its_beginning_to_half_of_the_models_window(local: Stack, upstream: MockUpstream) -> None:
    upstream.plays(said("Read."))
    part: Any = {"type": "input_file", "filename": "long.docx", "file_data": data_url(documents.docx("word " * 10_000))}
    local.client().responses.create(model="small", input=[{"role": "user", "content": [part]}])
    assert shown(upstream) == (
        f"[File long.docx]\n{('word ' * 10_000)[:8192]}\n[The text goes on. Its first 8192 characters are shown.]\n[End of long.docx]"
    )


UNREADABLE: dict[str, tuple[str, bytes, str]] = {
    "a scan": ("scan.pdf", documents.pdf(""), "'scan.pdf' cannot be read here: The PDF has no text. Its pages are pictures, or empty"),
    "half a document": ("half.docx", documents.docx("x" * 5000)[:150], "'half.docx' cannot be read here: The file is damaged"),
    "a bomb": ("laughs.docx", documents.laughs(), "'laughs.docx' cannot be read here: The document declares XML entities"),
    "a picture": ("a.bin", b"\x89PNG\r\n\x1a\n\xff\x00", "'a.bin' is not text (image/png)"),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_has_no_text_is_refused_in_a_sentence(local: Stack, what: str) -> None:
    name, content, words = UNREADABLE[what]
    part: Any = {"type": "input_file", "filename": name, "file_data": data_url(content)}
    with pytest.raises(openai.BadRequestError) as caught:
        local.client().responses.create(model="local", input=[{"role": "user", "content": [part]}])
    assert (caught.value.code, caught.value.param, words in caught.value.message) == ("invalid_prompt", "input", True), caught.value


def test_the_tokens_of_a_document_are_counted_as_the_model_would_read_them(local: Stack) -> None:
    def count(content: Any) -> int:
        return local.client().responses.input_tokens.count(model="local", input=[{"role": "user", "content": content}]).input_tokens

    part = {"type": "input_file", "filename": "tides.pdf", "file_data": data_url(FILES["tides.pdf"][0])}
    assert count([part]) == count([{"type": "input_text", "text": attached("tides.pdf")}])
