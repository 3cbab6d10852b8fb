"""Imported modules: a query must not wait for a deep-learning framework."""

import json
import subprocess
import sys
import tempfile

import pytest

from ragembed.cli import main

HEAVY = (
    "torch",
    "transformers",
    "sentence_transformers",
    "sklearn",
    "scipy",
    "langchain_core",
    "pandas",
    "ray",
    "openvino",
)
SHOW = "import sys, json; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})), file=sys.stderr)"


def loaded(code):
    # Leave the repository, whose folder ragembed/ would shadow the installed package.
    command = [sys.executable, "-c", f"{code}\n{SHOW}"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tempfile.gettempdir())
    return set(json.loads(run.stderr.strip().split("\n")[-1]))


def command(*args):
    return f"from ragembed.cli import main\nmain({[str(arg) for arg in args]!r}, standalone_mode=False)"


def make_store(folder, *options):
    (folder / "a.md").write_text("# Locks\n\nthe writer holds the lock\n")
    main([str(word) for word in ("index", folder, "--store", folder / "store", *options, "-q")], standalone_mode=False)
    return folder / "store"


@pytest.fixture(scope="module")
def store(tmp_path_factory, tiny_model):
    return make_store(tmp_path_factory.mktemp("imports"), "--model", tiny_model)


def test_importing_the_package_is_light():
    assert loaded("import ragembed").isdisjoint({*HEAVY, "faiss", "numpy", "tokenizers"})


def test_importing_the_training_package_is_light():
    code = "from ragembed.papers.training import RECIPES, StepSettings, TrainingSettings"
    assert loaded(code).isdisjoint({*HEAVY, "faiss", "numpy", "tokenizers"})


def test_evaluation_and_runs_with_workers_are_imported_without_a_framework():
    code = "import ragembed.distributed.members\nfrom ragembed.evaluation import read_beir, score_rankings, search"
    assert loaded(code).isdisjoint({*HEAVY, "faiss"})


def test_help_is_light():
    assert loaded(command("--help")).isdisjoint({*HEAVY, "faiss", "numpy", "tokenizers", "sqlite3"})


def test_listing_the_tools_for_agents_is_light():
    pytest.importorskip("mcp")
    code = (
        "import asyncio\nfrom pathlib import Path\nfrom mcp import Client\n"
        "from ragembed.serving.mcp_server import make_server\n"
        "async def run():\n"
        "    async with Client(make_server({'docs': Path('none')})) as client:\n"
        "        await client.list_tools()\n"
        "asyncio.run(run())"
    )
    assert loaded(code).isdisjoint({*HEAVY, "faiss", "numpy", "tokenizers", "sqlite3"})


def test_a_query_needs_no_framework(store):
    modules = loaded(command("query", "lock", "--store", store))
    assert "ragembed" in modules
    assert modules.isdisjoint(HEAVY)


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_a_first_index_on_the_processor_needs_no_pytorch(tmp_path, tiny_model, device):
    version = pytest.importorskip("torch").version
    if device == "auto" and (version.cuda or version.hip):
        pytest.skip("this PyTorch can use GPUs")
    (tmp_path / "a.md").write_text("# Locks\n\nthe writer holds the lock\n")
    run = command("index", tmp_path, "--store", tmp_path / "store", "--model", tiny_model, "--device", device, "-q")
    assert loaded(run).isdisjoint({*HEAVY} - {"openvino"})


@pytest.mark.parametrize("preset", ["minilm", pytest.param("bert+avg", marks=pytest.mark.slow)])
def test_a_run_after_an_edit_needs_no_framework(tmp_path, tiny_model, preset):
    store = make_store(tmp_path, "--preset", preset, "--model", tiny_model)
    (tmp_path / "a.md").write_text("# Locks\n\na reader never waits for the writer\n")
    run = command("index", "--store", store, "-q"), command("query", "reader", "--store", store)
    assert loaded("\n".join(run)).isdisjoint(HEAVY)


def test_status_and_files_and_chunks_need_no_framework(store):
    run = (
        command(*args, "--store", store)
        for args in (("status",), ("files", store.parent), ("chunks", store.parent / "a.md"))
    )
    assert loaded("\n".join(run)).isdisjoint(HEAVY)


def test_only_the_langchain_package_imports_langchain():
    assert loaded("import ragembed.langchain").isdisjoint({*HEAVY, "faiss", "langchain_community"} - {"langchain_core"})


def test_training_help_is_light():
    assert loaded(command("papers", "train", "defsent-plus", "--help")).isdisjoint(HEAVY)


def printed(code):
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tempfile.gettempdir()
    )
    return run.stdout


def test_command_exits_without_search_for_garbage():
    code = """
import atexit, gc
atexit.register(lambda: print(gc.get_freeze_count() > 0))  # functions run in reverse order
import ragembed.cli
gc.unfreeze()
"""
    assert printed(code).split() == ["True"]
