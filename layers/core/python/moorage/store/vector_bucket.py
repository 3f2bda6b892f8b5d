"""The vector bucket: vectors in and out of its indexes, one for each vector store (S3 Vectors).

Everything here may be done twice. Each vector bears one word by which a look is narrowed; filters of any other kind are the caller's.
What the service refuses is told as what it is: no index, no room for one, an answer that a later try may get, and all else.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from moorage import limits
from moorage.errors import MoorageError, VectorBucketError

_WORD: Final = "version"
"""The key of the vectors' metadata."""

_PASSING: Final = (
    *("TooManyRequestsException", "ThrottlingException", "ServiceUnavailableException"),
    *("InternalServerException", "RequestTimeoutException"),
)
"""Boto has tried again before one of these comes here."""


class NoRoomForIndex(MoorageError):
    """The vector bucket has as many indexes as it takes (10,000), or it is gone itself."""


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
        """Put vectors under their keys, in place of earlier ones. Raises :class:`IndexNotFound`. Vectors of zeros alone are refused."""
        entries = [{"key": key, "data": {"float32": numbers}, "metadata": {_WORD: word}} for key, numbers in vectors]
        await self._call("put_vectors", indexArn=self._index(index), vectors=entries)

    async def delete(self, index: str, keys: Sequence[str]) -> None:
        """Deleting a missing vector is no error."""
        for start in range(0, len(keys), limits.VECTORS_WRITTEN_AT_ONCE):
            try:
                some = list(keys[start : start + limits.VECTORS_WRITTEN_AT_ONCE])
                await self._call("delete_vectors", indexArn=self._index(index), keys=some)
            except IndexNotFound:
                return

    async def delete_index(self, index: str) -> None:
        """With all its vectors. Deleting a missing index is no error."""
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

    async def create_index(self, index: str, *, dimension: int) -> bool:
        """False if there is one: another writer may have made it this moment. Raises :class:`NoRoomForIndex`."""
        try:
            await self._call(
                "create_index",
                vectorBucketArn=self._arn,
                indexName=index,
                dataType="float32",
                dimension=dimension,
                distanceMetric="cosine",
            )
        except IndexNotFound as error:
            raise NoRoomForIndex("There is no vector bucket of this name.") from error
        except VectorBucketError as error:
            if error.reason == "ServiceQuotaExceededException":
                raise NoRoomForIndex(f"The vector bucket has no room for the index '{index}'.") from error
            if error.reason != "ConflictException":
                raise
            return False
        return True

    def _index(self, name: str) -> str:
        return f"{self._arn}/index/{name}"

    async def _call(self, operation: str, **request: Any) -> Any:
        method = getattr(self.client, operation)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: method(**request))
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code == "NotFoundException":
                raise IndexNotFound(f"{operation}: there is no such index, or no vector bucket.") from error
            raise VectorBucketError(operation, code, is_retryable=code in _PASSING) from error
        except BotoCoreError as error:  # no connection, or no answer
            raise VectorBucketError(operation, type(error).__name__, is_retryable=True) from error
