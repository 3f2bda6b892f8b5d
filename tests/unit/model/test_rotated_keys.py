"""Keys that are changed where they are kept, while processes that have read them live on."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError
from moorage import limits
from moorage.errors import UpstreamError
from moorage.model.base import ModelRequest
from moorage.model.catalog import ModelCatalog
from moorage.model.embedding_models import embedder_of
from moorage.model.relay import RelayedRequest, relay

MODELS = """
[[models]]
name = "m"
provider = "chat_completions"
base_url = "http://127.0.0.1:1/v1"
key = "ssm:/moorage/KEY"

[[embedding]]
name = "e"
provider = "openai"
base_url = "http://127.0.0.1:1/v1"
key = "ssm:/moorage/KEY"
dimension = 2

[mcp.tracker]
url = "https://mcp.example.com/mcp"
secret = "ssm:/moorage/KEY"
"""
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}], "usage": {}}
VECTORS = {"data": [{"index": 0, "embedding": [0.0, 1.0]}], "usage": {"prompt_tokens": 1}}


@dataclass
class World:
    """A key that is kept somewhere, an upstream that takes some keys, and a process that lives on."""

    kept: str = "old"
    taken: set[str] = field(default_factory=lambda: {"old"})
    now: float = 1000.0
    reads: int = 0
    seen: list[str] = field(default_factory=list)
    """Keys that the upstream was asked with."""
    is_throttled: bool = False
    kind: str = "ssm"
    """Where the key is kept."""

    def __post_init__(self) -> None:
        self.catalog = ModelCatalog.load(MODELS.replace("ssm:", f"{self.kind}:"), {}, secret=self._read, clock=lambda: self.now)
        self.transport = httpx.MockTransport(self._answer)
        (table,) = self.catalog.embeddings
        self.embedder = embedder_of(table, self.catalog.embedding_upstream(table, self.transport))
        """Made once in a process."""

    def _read(self, name: str) -> str:
        assert name == f"{self.kind}:/moorage/KEY"
        self.reads += 1
        if self.is_throttled:
            raise ClientError({"Error": {"Code": "ThrottlingException"}}, "GetParameter")
        return self.kept

    def _answer(self, request: httpx.Request) -> httpx.Response:
        key = request.headers["authorization"].removeprefix("Bearer ")
        self.seen.append(key)
        if key not in self.taken:
            said = json.dumps({"error": {"message": f"Incorrect API key provided: {key}"}})
            return httpx.Response(401, headers={"content-type": "application/json"}, stream=httpx.ByteStream(said.encode()))
        return httpx.Response(200, json=VECTORS if request.url.path.endswith("/embeddings") else ANSWER)

    async def ask(self) -> None:
        provider: Any = self.catalog.provider(self.catalog.resolve("m"), self.transport)
        async for _ in provider.stream(ModelRequest(model="m", items=())):
            pass

    async def embed(self) -> None:
        await self.embedder.embed(["text"], 2)

    async def pass_on(self) -> None:
        upstream = self.catalog.upstream_of(self.catalog.resolve("m"), self.transport)
        await (await relay(upstream, RelayedRequest("GET", "/containers"))).aread()

    def rotate(self) -> None:
        self.kept = "new"
        self.taken = {"old", "new"}

    def revoke(self) -> None:
        self.taken = {"new"}


WAYS = {"a model": World.ask, "an embedding model": World.embed, "an upstream's containers": World.pass_on}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())


@pytest.mark.parametrize("kind", ["ssm", "secretsmanager"])
@each_way
async def test_a_rotated_key_is_used_within_five_minutes(way: Any, kind: str) -> None:
    world = World(kind=kind)
    await way(world)
    world.rotate()
    await way(world)
    world.now += limits.SECRET_SECONDS_MAX
    await way(world)
    assert (world.seen, world.reads, limits.SECRET_SECONDS_MAX) == (["old", "old", "new"], 2, 300)


@pytest.mark.parametrize("kind", ["ssm", "secretsmanager"])
@each_way
async def test_a_key_that_is_refused_is_read_again_at_once(way: Any, kind: str) -> None:
    world = World(kind=kind)
    await way(world)
    world.rotate()
    world.revoke()
    world.now += limits.SECRET_SECONDS_MIN
    await way(world)
    await way(world)
    assert (world.seen, world.reads) == (["old", "old", "new", "new"], 2)


@each_way
async def test_a_key_that_stays_wrong_is_not_read_for_each_refusal(way: Any) -> None:
    world = World()
    world.revoke()
    for _ in range(3):
        with pytest.raises(UpstreamError, match="refused this deployment's credentials") as raised:
            await way(world)
        assert "old" not in raised.value.message
    assert (world.seen, world.reads) == (["old"] * 3, 1)


async def test_a_key_that_cannot_be_read_again_is_used_on() -> None:
    world = World()
    await world.ask()
    world.is_throttled = True
    world.now += limits.SECRET_SECONDS_MAX
    await world.ask()
    assert (world.seen, world.reads) == (["old", "old"], 2)


def test_servers_are_called_with_the_key_of_these_minutes() -> None:
    world = World()
    before = world.catalog.remote_servers.by_label["tracker"].headers
    world.rotate()
    world.now += limits.SECRET_SECONDS_MAX
    after = world.catalog.remote_servers.by_label["tracker"].headers
    assert (before, after) == ({"Authorization": "Bearer old"}, {"Authorization": "Bearer new"})
