"""What several tests of stores share: the texts that a model encodes, and runs over files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ragembed import EmbedderConfig
from ragembed.extractors.transformer import TransformerExtractor
from ragembed.indexes.indexing import fitting
from ragembed.indexes.indexing.index_run import IndexingReport, index_files
from ragembed.indexes.indexing.request import IndexingRequest


class Encoded(list[tuple[str, str]]):
    """Side and text of each text that the model encodes."""

    @property
    def documents(self) -> list[str]:
        return [text for side, text in self if side in ("documents", "few-documents")]


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> Encoded:
    found = Encoded()
    original = TransformerExtractor.encode

    def encode(self, batch, side, *rest):
        found.extend((side, text) for text in batch)
        return original(self, batch, side, *rest)

    monkeypatch.setattr(TransformerExtractor, "encode", encode)
    return found


@pytest.fixture
def run(in_folder: Path, tiny_config: EmbedderConfig, monkeypatch: pytest.MonkeyPatch) -> Callable[..., IndexingReport]:
    """``run(*paths, options=None, allow_empty=False, dry_run=False)``: index paths into the folder's store."""
    monkeypatch.setattr(fitting, "MIN_FIT", 2)

    def index(*paths, options=None, allow_empty=False, **kwargs):
        request = IndexingRequest(in_folder / ".ragembed", paths, options, tiny_config, allow_empty=allow_empty)
        return index_files(request, **kwargs)

    return index


def counts(report: IndexingReport) -> tuple[int, int, int, int, int]:
    """Return the numbers of added, changed, removed, unchanged and skipped files."""
    scan = report.scan
    return len(scan.added), len(scan.changed), len(scan.removed), scan.unchanged, len(scan.skipped)
