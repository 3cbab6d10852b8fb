"""The store that readers and a writer share: groups of chunks whose versions tell a torn read.

In every generation each group is complete in one version: all of its chunks carry the same number, in their metadata
and in their texts. Beside them there are loose chunks that come and go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ragembed import Embedder, EmbedderConfig
from ragembed.documents.model import Chunk
from ragembed.indexes import ChunkRecord, Hit, SourceRecord, Store
from ragembed.indexes.writer import StoreWriter
from reliability.corpus import WORDS

GROUPS, PARTS, LOOSE = 12, 5, 300
_NO_GROUP = 1000
_LEAST_DIFFERENCE = 2e-3
CONFIG = EmbedderConfig(extractor="re:dim=64", weighting="uniform", postprocess=("normalize",), sides="one")
CHAINS = (("normalize",), ())
"""Post-processors that the writer changes between: other files and fingerprints, and the same unit vectors."""


def embedder() -> Embedder:
    """Return an embedder that is the same in every process."""
    return Embedder(CONFIG).fit([WORDS[0]])


def make_store(path: Path) -> None:
    """Make a store of all groups in version 0, and loose chunks."""
    with Store.create(path, embedder()) as store, store.writer() as writer:
        for group in range(GROUPS):
            put_group(writer, group, 0)
        add(writer, loose(range(LOOSE)))


def text_of(group: int, part: int, version: int) -> str:
    """Return the text of a group's part, in words that tell the group and others that tell the version."""
    drawn = np.random.default_rng([group, part, version]).integers(len(WORDS), size=8).tolist()
    return f"{name_of(group)} part{part} version{version} {' '.join(WORDS[i] for i in drawn)}"


def name_of(group: int) -> str:
    """Return the word that only the texts of one group have."""
    return f"group{group}x"


def put_group(writer: StoreWriter, group: int, version: int) -> None:
    """Put a version in the place of a group's former one, in one commit.

    Groups with even numbers keep their ids; every other of the rest has new ids; the others are those of a file.
    """
    from_file = group % 4 == 3
    path = f"{name_of(group)}.md"
    records = [
        ChunkRecord(
            _id(group, part, version),
            Chunk(text_of(group, part, version), metadata={"group": group, "version": version}),
            path if from_file else None,
        )
        for part in range(PARTS)
    ]
    writer.stage(record.chunk.embedded_text for record in records)
    source = SourceRecord(path, 1, version, f"{version:064x}", "soak")
    former = [_id(group, part, version - 1) for part in range(PARTS)]
    ids = {record.id for record in records}
    writer.commit(
        chunks=records,
        sources=[source] if from_file else [],
        removed_ids=[] if from_file else [name for name in former if name not in ids],
    )


def _id(group: int, part: int, version: int) -> str:
    return f"{group}-{part}" if group % 2 == 0 else f"{group}-{part}-{version}"


def loose(numbers: Iterable[int]) -> list[ChunkRecord]:
    """Return loose chunks, of which a tenth each has the same number ``loose`` in its metadata."""
    return [
        ChunkRecord(f"loose-{i}", Chunk(f"loose {text_of(_NO_GROUP, i % 9, i)}", metadata={"loose": i % 10}))
        for i in numbers
    ]


def add(writer: StoreWriter, records: Sequence[ChunkRecord]) -> None:
    """Add chunks in one commit."""
    writer.stage(record.chunk.embedded_text for record in records)
    writer.commit(chunks=records)


class Watch:
    """Tells what is torn in the answers that one reader gets; versions never go back for it."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = defaultdict(int)
        self._embedder = embedder()

    def torn(self, chunks: Iterable[ChunkRecord | Hit]) -> Iterator[str]:
        """Yield a sentence for each group of which chunks are of several versions, of an earlier one, or mixed up."""
        versions: dict[int, set[int]] = defaultdict(set)
        for found in chunks:
            if "group" not in found.chunk.metadata:
                continue
            group, version = found.chunk.metadata["group"], found.chunk.metadata["version"]
            versions[group].add(version)
            part = int(found.id.split("-")[1])
            if found.chunk.text != text_of(group, part, version) or found.id != _id(group, part, version):
                yield f"chunk {found.id!r} of version {version} has the text {found.chunk.text!r}"
        for group, found_versions in versions.items():
            if len(found_versions) > 1:
                yield f"group {group} is found in versions {sorted(found_versions)} at once"
            if min(found_versions) < self._seen[group]:
                yield f"group {group} is found in version {min(found_versions)} after {self._seen[group]}"
            self._seen[group] = max(self._seen[group], *found_versions)

    def wrong_scores(self, question: str, hits: Sequence[Hit]) -> Iterator[str]:
        """Yield a sentence for each hit whose cosine is not that of its text, and one where order is wrong."""
        scores = [hit.score for hit in hits]
        if scores != sorted(scores, reverse=True):
            yield f"scores are not in order: {scores}"
        dense = [hit for hit in hits if hit.dense is not None]
        if dense:
            texts = [hit.chunk.embedded_text for hit in dense]
            expected = self._embedder.encode_documents(texts) @ self._embedder.encode_queries([question])[0]
            for hit, cosine in zip(dense, expected.tolist(), strict=True):
                if abs(float(hit.dense or 0.0) - cosine) > _LEAST_DIFFERENCE:
                    yield f"chunk {hit.id!r} has the cosine {hit.dense}, its text {cosine}"
