"""Answer customers from your documents: ``python support_bot.py FOLDER QUESTION [SERVER]``.

The documents of the folder go into a vector store. The next question finds it by its name. A remote MCP server can add live data, such
as orders: SERVER is its public URL, or its label in models.toml. Its tools that only read need no approval.
"""

import os
import sys
from pathlib import Path

from openai import OpenAI

INSTRUCTIONS = "Answer from the documents with citations. If they do not have the answer, say so. Use the remote tools for live data."


def store_of(client: OpenAI, folder: Path) -> str:
    """The id of the folder's vector store, made at the first call."""
    name = f"support {folder.resolve()}"
    for store in client.vector_stores.list():
        if store.name == name:
            return store.id
    store = client.vector_stores.create(name=name)
    files = [(path.name, path.read_bytes()) for path in sorted(folder.iterdir()) if path.is_file()]
    batch = client.vector_stores.file_batches.upload_and_poll(store.id, files=files)
    print(f"indexed {batch.file_counts.completed} of {batch.file_counts.total} documents")
    return store.id


def main(folder: str, question: str, server: str = "") -> None:
    client = OpenAI()
    tools: list[dict] = [{"type": "file_search", "vector_store_ids": [store_of(client, Path(folder))]}]
    if server:
        named = {"server_label": "shop", "server_url": server} if "://" in server else {"server_label": server}
        tools.append({"type": "mcp", **named, "require_approval": {"never": {"read_only": True}}})
    model = os.environ.get("MOORAGE_MODEL", "demo")
    response = client.responses.create(
        model=model, instructions=INSTRUCTIONS, input=question, tools=tools, include=["file_search_call.results"]
    )
    for item in response.output:
        if item.type == "file_search_call":
            print("searched:", *item.queries, "->", *sorted({result.filename for result in item.results or []}))
        elif item.type == "mcp_call":
            print(f"called {item.name}: {item.output or item.error}")
        elif item.type == "mcp_approval_request":
            print(f"needs approval: {item.name} {item.arguments}")
    print(response.output_text)


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        raise SystemExit("usage: support_bot.py FOLDER QUESTION [SERVER]")
    main(*sys.argv[1:])
