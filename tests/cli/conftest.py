from __future__ import annotations

import pytest


@pytest.fixture
def docs(in_folder):
    folder = in_folder / "docs"
    folder.mkdir()
    (folder / "locks.md").write_text(
        "# Locks\n\nThe writer holds the lock of the store.\n\n## Readers\n\nA reader never waits for a writer.\n"
        "It sees one whole generation of the store.\n"
    )
    (folder / "wings.txt").write_text("Shock wave and boundary layer.\n\nSupersonic air flow on a wing.\n")
    return folder


@pytest.fixture
def indexed(docs, cli, tiny_model):
    """A folder ``docs`` and its store beside it, made with the tiny model."""
    cli("index", docs, "--model", tiny_model)
    return docs
