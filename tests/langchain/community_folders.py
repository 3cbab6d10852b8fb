"""Folders as langchain-community itself saves them; ``data/community-0.4.2.zip`` was made by :func:`save_all`.

    python -c "from tests.langchain.community_folders import pack; pack()"

in an environment with langchain-community 0.4.2, langchain-core 1.7 and faiss-cpu 1.15.
"""

from __future__ import annotations

import datetime as dt
import decimal
import io
import pathlib
import pickle  # noqa: TID251  files of old versions and hostile ones are made with it
import shutil
import struct
import tempfile
import uuid
import warnings
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from langchain_core.documents import Document

from .fakes import Angles

GOLDEN = Path(__file__).parent / "data" / "community-0.4.2.zip"
TEXTS = ["0", "30", "90"]
IDS = ["a", "ü", "c"]
METADATA: list[dict[str, Any]] = [{"n": 1, "tags": ["x", "y"]}, {"source": "Ordner/ü.txt", "score": 0.5}, {}]
RICH = {
    "numpy": np.float32(1.5),
    "count": np.int64(-3),
    "flag": np.bool_(True),
    "word": np.str_("añ"),
    "missing": float("nan"),
    "when": dt.datetime(2024, 2, 29, 12, 30, 1, 7, tzinfo=dt.timezone.utc),
    "here": dt.datetime(2024, 10, 27, 2, 30, tzinfo=dt.timezone(dt.timedelta(hours=-3)), fold=1),
    "day": dt.date(1999, 12, 31),
    "time": dt.time(23, 59, 58),
    "length": dt.timedelta(days=1, microseconds=500_000),
    "path": pathlib.PurePosixPath("/a/b.txt"),
    "drive": pathlib.PureWindowsPath("c:/a/b.txt"),
    "key": uuid.UUID(int=2**127 + 5),
    "price": decimal.Decimal("12.50"),
    "set": {7},
    "frozen": frozenset({8}),
    "pair": (1, ("two", None)),
    "large": 2**70,
}
PLAIN = {
    "numpy": 1.5,
    "count": -3,
    "flag": True,
    "word": "añ",
    "missing": None,
    "when": "2024-02-29T12:30:01.000007+00:00",
    "here": "2024-10-27T02:30:00-03:00",
    "day": "1999-12-31",
    "time": "23:59:58",
    "length": 86400.5,
    "path": "/a/b.txt",
    "drive": "c:\\a\\b.txt",
    "key": "80000000-0000-0000-0000-000000000005",
    "price": 12.5,
    "set": [7],
    "frozen": [8],
    "pair": [1, ["two", None]],
    "large": 2**70,
}
"""``RICH`` as JSON."""


def opcodes(value: Any, protocol: int = 3) -> bytes:
    """Return what pickle writes for ``value``, without the first and the last opcode, frames and references."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol)
    pickler.fast = True
    pickler.dump(value)
    return buffer.getvalue()[2:-1]


def text(value: object) -> bytes:
    """Return the opcodes of a text."""
    data = str(value).encode()
    return b"X" + struct.pack("<I", len(data)) + data


def name(path: str) -> bytes:
    """Return the opcodes of a class or function."""
    module, _, attribute = path.rpartition(".")
    return text(module) + text(attribute) + b"\x93"


def whole(*parts: bytes) -> bytes:
    """Return a pickle of these opcodes."""
    return b"\x80\x04" + b"".join(parts) + b"."


def docstore(documents: Any, ids: Any = None) -> bytes:
    """Return an ``index.pkl``; ``documents`` maps ids to documents, or is the opcodes of such a mapping."""
    positions = dict(enumerate(documents)) if ids is None else ids
    state = b"}" + text("_dict") + (documents if isinstance(documents, bytes) else opcodes(documents)) + b"s"
    kept = name("langchain_community.docstore.in_memory.InMemoryDocstore") + b")\x81" + state + b"b"
    return whole(kept, opcodes(positions), b"\x86")


def with_metadata(value: bytes) -> bytes:
    """Return an ``index.pkl`` with one document ``x``, whose metadata ``m`` is given by the opcodes ``value``."""
    before, after = opcodes({"x": Document("text", metadata={"m": "VALUE"})}).split(text("VALUE"))
    return docstore(before + value + after, {0: "x"})


def community() -> Any:
    """Import the FAISS module of langchain-community, which warns that it is no longer maintained."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(
            "langchain_community.vectorstores.faiss", reason="langchain-community is not installed"
        )


def save_all(folder: Path) -> None:
    """Save one store of each kind in ``folder``."""
    module = community()
    store, documents = module.FAISS, {"metadatas": METADATA, "ids": IDS}
    store.from_texts(TEXTS, Angles(), **documents).save_local(str(folder / "l2"))
    strategy = module.DistanceStrategy.MAX_INNER_PRODUCT
    inner = store.from_texts(TEXTS, Angles(2.0), distance_strategy=strategy, **documents)
    inner.save_local(str(folder / "inner"), index_name="other")
    store.from_texts(["45"], Angles(), [RICH], ids=["rich"]).save_local(str(folder / "rich"))
    store.from_texts(["45", "60"], Angles(), ids=[7, -8]).save_local(str(folder / "odd-ids"))
    deleted = store.from_texts(TEXTS, Angles(), **documents)
    deleted.delete(["ü"])
    deleted.save_local(str(folder / "deleted"))
    refused = store.from_texts(TEXTS, Angles(), **documents)
    with pytest.raises(ValueError, match="already exist"):
        refused.add_texts(["180"], ids=["a"])
    refused.save_local(str(folder / "refused"))
    refused.add_texts(["45"], ids=["d"])
    refused.save_local(str(folder / "shifted"))
    lists = faiss.IndexIVFFlat(faiss.IndexFlatL2(2), 2, 1)
    lists.train(np.eye(2, dtype=np.float32))
    for name, index in (("ivf", lists), ("hnsw", faiss.IndexHNSWFlat(2, 4))):
        other = store(Angles(), index, module.InMemoryDocstore(), {})
        other.add_texts(TEXTS, METADATA, ids=IDS)
        other.save_local(str(folder / name))


def pack() -> None:
    """Write the golden folders again."""
    with tempfile.TemporaryDirectory() as folder:
        save_all(Path(folder))
        shutil.make_archive(str(GOLDEN.with_suffix("")), "zip", folder)
