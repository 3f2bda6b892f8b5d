"""The vector bucket: vectors in and out of its indexes, one of which each vector store has (S3 Vectors).

An index is made by the first vectors that are put into it, so that nobody needs to know whether there is one. Everything here may be
done twice. Each vector bears one word by which a look is narrowed; filters of any other kind are the caller's.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, Final

from botocore.exceptions import ClientError

from moorage import limits
from moorage.errors import MoorageError

_WORD: Final = "version"
"""The key of the vectors' metadata."""


class NoRoomForIndex(MoorageError):
    """The vector bucket has as many indexes as it takes (10,000)."""


class IndexNotFound(MoorageError):
    """The vector bucket has no such index."""


class VectorBucket:
    def __init__(self, client: Any, arn: str, executor: Executor) -> None:
        """``client`` is boto3's ``s3vectors``."""
        self.client = client
        self._arn = arn
        self._executor = executor

    @property
    def name(self) -> str:
        return self._arn.rpartition("/")[2]

    async def put(self, index: str, vectors: Sequence[tuple[str, Sequence[float]]], *, word: str) -> None:
        """Under their keys, in place of what was there. Raises :class:`NoRoomForIndex`. Vectors of nothing but zeros are refused."""
        entries = [{"key": key, "data": {"float32": numbers}, "metadata": {_WORD: word}} for key, numbers in vectors]
        try:
            await self._call("put_vectors", indexArn=self._index(index), vectors=entries)
        except IndexNotFound:
            await self._create(index, dimension=len(vectors[0][1]))
            await self._call("put_vectors", indexArn=self._index(index), vectors=entries)

    async def delete(self, index: str, keys: Sequence[str]) -> None:
        """Deleting what is not there is no error."""
        for start in range(0, len(keys), limits.VECTORS_WRITTEN_AT_ONCE):
            try:
                some = list(keys[start : start + limits.VECTORS_WRITTEN_AT_ONCE])
                await self._call("delete_vectors", indexArn=self._index(index), keys=some)
            except IndexNotFound:
                return

    async def delete_index(self, index: str) -> None:
        """With all its vectors. Deleting what is not there is no error."""
        try:
            await self._call("delete_index", indexArn=self._index(index))
        except IndexNotFound:
            return

    async def nearest(
        self, index: str, vector: Sequence[float], *, most: int, words: Sequence[str] | None = None
    ) -> list[tuple[str, float]]:
        """Keys and cosine distances (0 to 2) of the vectors that are nearest, of those that bear one of the words. Raises
        :class:`IndexNotFound`."""
        request: dict[str, Any] = {"topK": most, "queryVector": {"float32": vector}, "returnDistance": True}
        if words is not None:
            request["filter"] = {_WORD: {"$in": list(words)}}
        found: list[tuple[str, float]] = []
        for _ in range(limits.NEIGHBOUR_PAGES_MAX):
            page = await self._call("query_vectors", indexArn=self._index(index), **request)
            found += [(each["key"], each["distance"]) for each in page["vectors"]]
            if not page.get("nextToken") or len(found) >= most:
                break
            request["nextToken"] = page["nextToken"]
        return found[:most]

    async def _create(self, index: str, *, dimension: int) -> None:
        try:
            await self._call(
                "create_index",
                vectorBucketArn=self._arn,
                indexName=index,
                dataType="float32",
                dimension=dimension,
                distanceMetric="cosine",
            )
        except ClientError as error:
            if _code(error) == "ServiceQuotaExceededException":
                raise NoRoomForIndex(f"The vector bucket has no room for the index '{index}'.") from error
            if _code(error) != "ConflictException":  # Another writer has made it this moment.
                raise

    def _index(self, name: str) -> str:
        return f"{self._arn}/index/{name}"

    async def _call(self, operation: str, **request: Any) -> Any:
        method = getattr(self.client, operation)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: method(**request))
        except ClientError as error:
            if _code(error) == "NotFoundException":
                raise IndexNotFound(f"{operation}: there is no such index, or no vector bucket.") from error
            raise


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
