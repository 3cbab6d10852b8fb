from __future__ import annotations

import shutil

import pytest
from click.testing import CliRunner

from ragembed.cli import main


def write_docs(folder):
    folder.mkdir()
    (folder / "locks.md").write_text(
        "# Locks\n\nThe writer holds the lock of the store.\n\n## Readers\n\nA reader never waits for a writer.\n"
        "It sees one whole generation of the store.\n"
    )
    (folder / "wings.txt").write_text("Shock wave and boundary layer.\n\nSupersonic air flow on a wing.\n")


@pytest.fixture
def docs(in_folder):
    write_docs(in_folder / "docs")
    return in_folder / "docs"


@pytest.fixture(scope="session")
def _indexed(tmp_path_factory, tiny_model):
    made = {}

    def make(write):
        if write not in made:
            made[write] = folder = tmp_path_factory.mktemp("indexed")
            write_docs(folder / "docs")
            write(folder / "docs")
            command = ("index", folder / "docs", "--store", folder / ".ragembed", "--model", tiny_model)
            result = CliRunner().invoke(main, [str(argument) for argument in command])
            assert result.exit_code == 0, result.output
        return made[write]

    return make


@pytest.fixture
def indexed_with(_indexed, in_folder):
    """``indexed_with(write)``: a copy of a folder ``docs``, to which ``write`` added files, and of its store."""

    def copy(write):
        shutil.copytree(_indexed(write), in_folder, dirs_exist_ok=True)
        return in_folder / "docs"

    return copy


@pytest.fixture
def indexed(indexed_with):
    """A folder ``docs`` and its store beside it, made with the tiny model; both are copies for one test alone."""
    return indexed_with(nothing_more)


def nothing_more(_folder):
    """Add no file."""


def flip(file):
    """Change a byte in the middle of a file."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    return file
