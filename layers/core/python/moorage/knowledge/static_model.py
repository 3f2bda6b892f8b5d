"""The embedding model that is always there on one machine: a table of 32,000 vectors, one for each token, and their mean for a text.

It asks nobody and downloads nothing: weights and tokenizer come in the wheel of ``wordllama`` (MIT), whose own loader is left aside,
because it looks for its tokenizer on the network. What it knows is which words are like each other, in English; it knows nothing of
their order. Vectors may be shortened: the model was trained so that their first numbers say the most.
"""

import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moorage.model.embedding_models import EmbeddedTexts
from moorage.parallel import worked

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from tokenizers import Tokenizer

NAME: Final = "static-256"
DIMENSION: Final = 256

_WEIGHTS: Final = "weights/l2_supercat_256.safetensors"
_TOKENIZER: Final = "tokenizers/l2_supercat_tokenizer_config.json"


def is_installed() -> bool:
    """Whether the files are there; nothing of them is read."""
    return all(importlib.util.find_spec(name) is not None for name in ("wordllama", "tokenizers"))


class StaticEmbedder:
    name = NAME
    dimension = DIMENSION

    def takes(self, dimension: int) -> bool:
        return 1 <= dimension <= DIMENSION

    async def embed(self, texts: Sequence[str], dimension: int) -> EmbeddedTexts:
        # In a thread of its own: tokenizing is a second's work for a thousand chunks.
        return await worked(lambda: _embed(texts, dimension))


def _embed(texts: Sequence[str], dimension: int) -> EmbeddedTexts:
    tokenizer, table = _model()
    encoded = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    vectors = [_mean(table, each.ids, dimension) for each in encoded]
    return EmbeddedTexts([vector.tobytes() for vector in vectors], sum(len(each.ids) for each in encoded))


def _mean(table: "npt.NDArray[np.float32]", ids: list[int], dimension: int) -> "npt.NDArray[np.float32]":
    """Of length 1; nothing but zeros for a text without a token."""
    import numpy as np

    if not ids:
        return np.zeros(dimension, np.float32)
    mean: npt.NDArray[np.float32] = table[ids].mean(axis=0)[:dimension]
    length = float(np.linalg.norm(mean))
    return mean / np.float32(length) if length else mean


@cache
def _model() -> "tuple[Tokenizer, npt.NDArray[np.float32]]":
    """Read once in a process: 90 ms, and 32 MB of memory."""
    import numpy as np
    from tokenizers import Tokenizer

    found = importlib.util.find_spec("wordllama")
    assert found is not None, "is_installed() was asked before"
    folder = Path(str(found.origin)).parent
    tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    shape, numbers = _tensor((folder / _WEIGHTS).read_bytes())
    return tokenizer, np.frombuffer(numbers, "<f2").reshape(shape).astype(np.float32)


def _tensor(file: bytes) -> tuple[list[int], memoryview]:
    """The only one of a safetensors file: the length of a header in JSON, the header, the numbers."""
    import orjson

    behind = 8 + int.from_bytes(file[:8], "little")
    header: dict[str, Any] = orjson.loads(file[8:behind])
    (tensor,) = (value for name, value in header.items() if name != "__metadata__")
    assert tensor["dtype"] == "F16", tensor
    start, end = tensor["data_offsets"]
    return tensor["shape"], memoryview(file)[behind + start : behind + end]
