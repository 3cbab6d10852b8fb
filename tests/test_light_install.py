"""A light installation, simulated: OpenVINO, PyTorch, transformers, SciPy and scikit-learn cannot be imported."""

import ast
import json
import os
import subprocess
import sys
import tempfile

import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.indexes import Store
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.version import install_command

ABSENT = ("openvino", "torch", "transformers", "scipy", "sklearn", "sentence_transformers")
# None means "not installed" to the import system.
BLOCKER = f"import sys\nsys.modules.update(dict.fromkeys({ABSENT!r}))\n"
PROGRAM = (
    "import sys; from ragembed.cli import main\n"
    "for line in sys.stdin.read().splitlines():\n"
    "    import json; print('>', line); main(json.loads(line), standalone_mode=False)\n"
)
TEXTS = [
    f"# Topic {i}\n\nthe {a} {b} is in the {c} store\n\n## Part\n\n{c} {b} and {a} file {i}\n"
    for i, (a, b, c) in enumerate(
        (a, b, c)
        for a in ("red", "green", "blue", "cat")
        for b in ("lock", "wing", "wave")
        for c in ("alpha", "beta", "gamma")
    )
]


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """A function that runs commands in one process without those packages."""
    blocked = tmp_path_factory.mktemp("blocked")
    (blocked / "sitecustomize.py").write_text(BLOCKER)
    path = os.pathsep.join([str(blocked), *filter(None, [os.environ.get("PYTHONPATH")])])

    def run(*commands, code=PROGRAM):
        lines = "\n".join(json.dumps([str(word) for word in command]) for command in commands)
        return subprocess.run(
            [sys.executable, "-c", code],
            input=lines,
            capture_output=True,
            text=True,
            cwd=tempfile.gettempdir(),
            env={**os.environ, "PYTHONPATH": path},
        )

    return run


@pytest.fixture
def docs(tmp_path):
    for i, text in enumerate(TEXTS):
        (tmp_path / "docs" / f"{i}.md").parent.mkdir(exist_ok=True)
        (tmp_path / "docs" / f"{i}.md").write_text(text)
    return tmp_path / "docs"


@pytest.mark.parametrize(
    "preset", ["bert+avg", *(pytest.param(each, marks=pytest.mark.slow) for each in ("minilm", "re"))]
)
def test_store_commands_work_without_pytorch_and_scipy(light, docs, tiny_model, preset):
    store = ("--store", docs.parent / "store")
    done = light(
        ("index", docs, *store, "--preset", preset, "--model", tiny_model),
        ("query", "red lock", *store, "--explain"),
        *(("query", "red lock", *store, "--mode", mode) for mode in ("hybrid", "dense", "lexical")),
        ("status", *store),
        ("refit", *store),
        ("doctor", "--repair", *store),
        ("doctor", "--integrity", *store),
        ("chunks", docs / "1.md", *store),
        ("files", docs, *store),
        ("query", "red lock", "--why", docs / "1.md", *store),
        ("delete", docs / "0.md", *store),
        ("index", docs, *store),
    )
    assert done.returncode == 0, done.stderr
    assert not any(f"/{name}/" in done.stderr for name in ABSENT)
    assert "skipped" not in done.stderr.replace("0 skipped", "")


def test_vectors_equal_those_with_pytorch(light, docs, tiny_model):
    store = docs.parent / "store"
    done = light(("index", docs, "--store", store, "--model", tiny_model, "--postprocess", "normalize"))
    assert done.returncode == 0, done.stderr
    with Store.open(store) as opened:
        embedder = opened.embedder
        assert embedder.config.dtype == "float32"
        texts = list(opened.embedded_texts())
        hits = opened.search(texts[5], k=1, mode="dense")
        assert hits[0].score == pytest.approx(1.0, abs=1e-3)
        same = Embedder(EmbedderConfig(**embedder.config.to_dict()))
        assert same.fit(texts).raw_fingerprint == embedder.raw_fingerprint


def test_bfloat16_store_without_pytorch(light, docs, tiny_model):
    store = ("--store", docs.parent / "store")
    config = EmbedderConfig(model=str(tiny_model), dtype="mixed")
    index_files(IndexingRequest(docs.parent / "store", (docs,), embedder=config))
    (docs / "0.md").write_text("the zebra sleeps")
    done = light(("index", docs, *store), ("query", "zebra", *store, "--json"))
    assert done.returncode == 0, done.stderr
    assert "the zebra sleeps" in done.stdout
    for file in docs.iterdir():
        file.write_text(file.read_text() + "\nheat and pressure\n")
    refused = light(("index", docs, *store))
    assert refused.returncode != 0
    assert "encoding many texts in bfloat16 needs the package 'openvino'" in refused.stderr
    assert install_command("cpu") in refused.stderr


MISSING = [
    ("from ragembed.papers.training import train_from_dictionary", "torch,papers"),
    ("from ragembed.postprocess import ZScoreEstimator", "papers"),
    ("from ragembed.papers import clustering_accuracy", "papers"),
    ("from ragembed.papers import classification_accuracy", "papers"),
    ("from pathlib import Path\nfrom ragembed.papers import read_sts\nread_sts(Path('x'))", "papers"),
    ("from ragembed.reranking import ModelReranker; ModelReranker('x')", "torch"),
    ("from ragembed import Embedder; Embedder(device='gpu').device_names()", "torch"),
    (
        "from ragembed.cli import main; main(['papers', 'reverse-dictionary', '.', 'x'], standalone_mode=False)",
        "torch,papers",
    ),
]
NAMED = """
for code in CODES:
    try:
        exec(code)
    except BaseException as error:
        print(repr(str(error)))
    else:
        print("no error")
"""


def test_missing_extra_is_named(light):
    done = light(code=f"CODES = {[code for code, _ in MISSING]!r}{NAMED}")
    for (code, extra), line in zip(MISSING, done.stdout.splitlines(), strict=True):
        assert install_command(extra) in ast.literal_eval(line), code


def test_other_models_than_bert_name_pytorch(light, docs, tiny_model, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    for file in tiny_model.iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "model_type": "electra"}))
    done = light(("index", docs, "--store", tmp_path / "store", "--model", model))
    assert done.returncode != 0
    assert "which is not a BERT or one of its relatives" in done.stderr
    assert install_command("torch") in done.stderr
