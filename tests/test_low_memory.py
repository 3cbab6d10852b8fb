"""With little memory, each command ends with one error, and the store stays as it was."""

import errno
import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from ragembed.cli import ERROR_EXIT, main
from ragembed.errors import OutOfMemoryError
from ragembed.indexes.faiss_index import records
from ragembed.resources import out_of_memory, require_room
from tests.slow.helpers import content
from tests.test_light_install import BLOCKER

resource = pytest.importorskip("resource", reason="Windows has no limits of the address space")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limit is measured on Linux only")

PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv.pop(1)) << 20,) * 2)
from ragembed.cli import main
main(prog_name="ragembed")
"""
INDEX = ("index", "docs", "--json")
QUERY = ("query", "the writer holds a lock", "--json")
REFIT = ("refit", "--postprocess", "center")
RANDOM = ("--extractor", "re:dim=64")


def limited(megabytes, *arguments):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(megabytes), *arguments], capture_output=True, text=True, check=False
    )


def write_docs(folder, count=40):
    (folder / "docs").mkdir()
    for i in range(count):
        (folder / "docs" / f"{i}.md").write_text(f"# File {i}\n\nthe writer holds the lock number {i} of a store\n")


def check(done, megabytes):
    """Tell whether the command succeeded; otherwise it printed one error that names the limit."""
    assert done.returncode in (0, ERROR_EXIT), (megabytes, done.returncode, done.stderr)
    assert "Traceback" not in done.stderr, (megabytes, done.stderr)
    errors = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == (done.returncode == ERROR_EXIT), (megabytes, done.stderr)
    assert all("memory" in error and f"{megabytes:,} MB" in error and "ulimit -v" in error for error in errors), errors
    return done.returncode == 0


@pytest.mark.usefixtures("needs_minilm")
def test_a_first_index_without_room_names_the_limit(in_folder):
    write_docs(in_folder)
    assert not check(limited(60, *INDEX, *RANDOM), 60)
    check(limited(400, *INDEX, *RANDOM), 400)  # after data was written, if FAISS is installed
    result = CliRunner().invoke(main, [*INDEX, *RANDOM])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["chunks"] == 40


@pytest.mark.slow
@pytest.mark.usefixtures("needs_minilm")
@pytest.mark.parametrize("absent", ["", BLOCKER], ids=["all packages", "without PyTorch"])
@pytest.mark.parametrize("model", [RANDOM, ()], ids=["random embeddings", "the default model"])
def test_each_limit_gives_a_result_or_one_error(in_folder, tmp_path, monkeypatch, model, absent):
    (tmp_path / "sitecustomize.py").write_text(absent)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)
    write_docs(in_folder)
    limits = (*range(50, 1000, 90), *range(1000, 3000, 400))
    indexed = [check(limited(limit, *INDEX, *model), limit) for limit in limits]
    assert not indexed[0]
    assert indexed[-1]
    before = content(in_folder / ".ragembed")
    for command in (QUERY, REFIT):
        done = [check(limited(limit, *command), limit) for limit in limits]
        assert not done[0]
        assert done[-1]
    assert content(in_folder / ".ragembed") == before
    assert CliRunner().invoke(main, ["doctor", "--integrity"]).exit_code == 0


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 293. MiB for an array"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
        RuntimeError("std::bad_alloc"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1179648 bytes."),
        RuntimeError("could not create a primitive"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ],
    ids=repr,
)
def test_errors_of_libraries_that_lack_memory_become_one_error(in_folder, monkeypatch, error):
    def fails(*args, **kwargs):
        raise error

    write_docs(in_folder, 1)
    monkeypatch.setattr("ragembed.cli.project.option_defaults", fails)
    result = CliRunner().invoke(main, ["index", "docs"])
    assert result.exit_code == ERROR_EXIT
    assert result.stderr.startswith("Error: the memory ran out (")
    assert result.stderr.endswith("; a store stays in its last committed state\n")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("error", [RuntimeError("no such thread"), ImportError("no faiss")])
def test_other_errors_are_not_taken_for_a_lack_of_memory(error):
    assert out_of_memory(error) is None


def test_faiss_that_does_not_fit_is_not_reported_as_missing(monkeypatch):
    def fails(name):
        raise ImportError("swigfaiss.so: failed to map segment from shared object")

    monkeypatch.setattr(records, "import_module", fails)
    with pytest.raises(OutOfMemoryError, match="failed to map segment"):
        records.LazyFaiss().is_installed()


@pytest.mark.parametrize("name", ["NumPy", "PyTorch"])
def test_a_library_is_not_loaded_without_room(monkeypatch, name):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64 << 20, 64 << 20))
    with pytest.raises(
        OutOfMemoryError, match=rf"to load {name}: expected [\d,]+ MB of address space, but only 0 of 64"
    ):
        require_room(name)
