"""Models are used as their sentence-transformers package says: pooling, prompts and window."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.errors import ConfigError, IncompatibleStoreError, ModelError
from ragembed.extractors.transformer import PROBES
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingRequest

TEXTS = ["the cat sleeps", "[CLS] the dog runs and the fish swims, the bird flies", "supersonic air flow", "lock", ""]
_GELU = "torch.nn.modules.activation.GELU"
PROMPTS = {"query": "query: ", "document": "passage: "}


@pytest.fixture
def package(tiny_model: Path, tmp_path: Path) -> Any:
    """Return a function that packages the tiny model; keywords are files, with their fields."""

    def make(
        pooling: str | None = "cls", prompts: dict[str, str] | None = None, modules: list[str] | None = None
    ) -> Path:
        folder = Path(shutil.copytree(tiny_model, tmp_path / "packaged"))
        names = ["Transformer", "Pooling"] if modules is None else modules
        rows = [
            {
                "idx": i,
                "name": str(i),
                "path": "" if i == 0 else f"{i}_{name}",
                "type": f"sentence_transformers.models.{name}",
            }
            for i, name in enumerate(names)
        ]
        (folder / "modules.json").write_text(json.dumps(rows))
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 48, "do_lower_case": False}))
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts or {}}))
        modes = {
            f"pooling_mode_{name}": name == pooling for name in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")
        }
        (folder / "1_Pooling").mkdir()
        stated = (
            modes if pooling in ("cls_token", "mean_tokens", "lasttoken", "max_tokens") else {"pooling_mode": pooling}
        )
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **stated}))
        return folder

    return make


def embedder(folder: Path, **changes: Any) -> Embedder:
    return Embedder(EmbedderConfig(model=str(folder), **{"weighting": "uniform", "dtype": "float32", **changes})).fit(
        TEXTS
    )


@pytest.mark.parametrize(
    ("pooling", "name"),
    [("cls_token", "cls"), ("mean_tokens", "mean"), ("lasttoken", "last"), ("cls", "cls"), ("mean", "mean")],
)
def test_settings_in_use_are_recorded(package: Any, pooling: str, name: str) -> None:
    config = embedder(package(pooling, PROMPTS)).config
    assert (config.pooling, config.template, config.query_template) == (name, "passage: [X]", "query: [X]")
    assert config.max_tokens == 48


def test_model_without_package_uses_the_mean(tiny_model: Path) -> None:
    config = embedder(tiny_model).config
    assert (config.pooling, config.template, config.query_template) == ("mean", "[X]", None)


def test_stated_pooling_ignores_the_package(package: Any, tiny_model: Path) -> None:
    plain = embedder(package("max_tokens", PROMPTS), pooling="mean")
    np.testing.assert_allclose(plain.encode_queries(TEXTS), embedder(tiny_model).encode_queries(TEXTS), atol=1e-6)


def test_stated_template_replaces_the_prompts(package: Any) -> None:
    config = embedder(package("cls_token", PROMPTS), template="about [X]").config
    assert (config.pooling, config.template, config.query_template) == ("cls", "about [X]", None)


@pytest.mark.parametrize(
    ("pooling", "modules", "message"),
    [
        ("attention", None, "has the pooling 'attention': expected cls, max, mean"),
        ("mean", ["Transformer", "Pooling", "Dense"], "2_Dense has no model.safetensors"),
        (
            "mean",
            ["Transformer", "Pooling", "CNN"],
            "has the module 'sentence_transformers.models.CNN'.*--pooling mean",
        ),
        ("mean", ["StaticEmbedding"], "has no table of static vectors"),
    ],
)
def test_what_is_not_computed_is_refused(package: Any, pooling: str, modules: list[str] | None, message: str) -> None:
    folder = package(pooling, modules=modules)
    with pytest.raises(ModelError, match=message):
        embedder(folder)


def test_model_for_dot_products_is_refused(package: Any) -> None:
    folder = package("cls", modules=["Transformer", "Pooling"])
    (folder / "config_sentence_transformers.json").write_text('{"similarity_fn_name": "dot"}')
    with pytest.raises(ModelError, match=r"compares vectors by 'dot', .* by cosine: .* --pooling cls, "):
        embedder(folder)
    assert embedder(folder, pooling="cls").config.pooling == "cls"
    rows = json.loads((folder / "modules.json").read_text())
    end = {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
    (folder / "modules.json").write_text(json.dumps([*rows, end]))
    assert embedder(folder).config.pooling == "cls"  # of unit length, so that a dot product is a cosine


def test_damaged_package_is_refused(package: Any) -> None:
    folder = package("cls_token")
    (folder / "config_sentence_transformers.json").write_text('{"prompts": ["query: "]}')
    with pytest.raises(ModelError, match="expected an object of texts by name"):
        embedder(folder)
    rows = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([rows[0], {**rows[1], "path": "../elsewhere"}]))
    with pytest.raises(ModelError, match="outside the model folder"):
        embedder(folder)


def test_store_keeps_the_package(package: Any, in_folder: Path) -> None:
    (in_folder / "docs").mkdir()
    (in_folder / "docs" / "a.md").write_text("the cat sleeps")
    config = EmbedderConfig(model=str(package("cls_token", PROMPTS)), dtype="float32")
    store, paths = in_folder / "store", (in_folder / "docs",)
    index_files(IndexingRequest(store, paths, embedder=config))
    assert index_files(IndexingRequest(store, paths, embedder=config)).scan.unchanged == 1
    with pytest.raises(IncompatibleStoreError, match="pooling cls, not last"):
        index_files(
            IndexingRequest(
                store,
                paths,
                embedder=config.replace(pooling="last", template="passage: [X]", query_template="query: [X]"),
            )
        )


def same_direction(found: np.ndarray, expected: np.ndarray) -> bool:
    return bool(np.einsum("nd,nd->n", found, expected).min() > 0.99999)


def test_settings_change_the_package(package: Any) -> None:
    folder = package("cls_token", {**PROMPTS, "cluster": "cluster: "})
    config = embedder(folder, query_prompt="ask: ").config
    assert (config.template, config.query_template, config.query_prompt) == ("passage: [X]", "ask: [X]", None)
    assert embedder(folder, prompt_name="cluster").config.template == "cluster: [X]"
    with pytest.raises(ConfigError, match=r"unknown prompt 'none'.*'query', 'document', 'cluster'"):
        embedder(folder, prompt_name="none")
    with pytest.raises(ConfigError, match="query_prompt cannot be combined with template"):
        EmbedderConfig(template="t4", query_prompt="x")
    cut = embedder(folder, truncate_dim=8)
    assert cut.dim == 8
    whole = embedder(folder).raw_documents(TEXTS)
    np.testing.assert_allclose(cut.raw_documents(TEXTS), whole[:, :8], atol=1e-6)
    lengths = np.linalg.norm(embedder(folder, normalize=True).raw_documents(TEXTS), axis=1)
    np.testing.assert_allclose(lengths, 1.0, atol=1e-5)
    with pytest.raises(ConfigError, match=r"truncate_dim is 64: .*expected at most 32"):
        embedder(folder, truncate_dim=64)


def test_token_weights_follow_the_package(package: Any, tiny_model: Path) -> None:
    for folder, weighting in ((package("mean_tokens"), "uniform"), (tiny_model, "idf:0.25")):
        assert Embedder(EmbedderConfig(model=str(folder), dtype="float32")).resolved_config().weighting == weighting
    assert EmbedderConfig().weighting == "auto"


def test_replaced_parts_of_the_package_are_named(package: Any) -> None:
    folder = package("cls_token", PROMPTS)
    found = Embedder(EmbedderConfig.from_preset("bert", model=str(folder))).set_aside
    assert found == ("the pooling 'cls'", "the prompts 'passage: [X]' and 'query: [X]'")
    assert embedder(folder).set_aside == ()


def test_only_the_prompt_for_documents_is_used(package: Any) -> None:
    folder = package(prompts={"passage": "passage: "})
    (folder / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"passage": "passage: "}, "default_prompt_name": "passage"})
    )
    own = embedder(folder)
    assert (own.config.template, own.config.query_template) == ("[X]", None)
    assert own.set_aside == ("the prompt 'passage: ' for documents",)
    assert embedder(folder, document_prompt="passage: ").set_aside == ()


def with_dense(folder: Path) -> Path:
    """Replace the pooling-only package in ``folder`` by one with Dense and LayerNorm."""
    from safetensors.numpy import save_file

    rows = json.loads((folder / "modules.json").read_text())
    rng = np.random.default_rng(0)
    for i, name, fields, tensors in (
        (
            2,
            "Dense",
            {
                "in_features": 32,
                "out_features": 24,
                "bias": True,
                "activation_function": _GELU,
            },
            {"linear.weight": rng.normal(size=(24, 32)), "linear.bias": rng.normal(size=24)},
        ),
        (3, "LayerNorm", {"dimension": 24}, {"norm.weight": rng.normal(size=24), "norm.bias": rng.normal(size=24)}),
    ):
        place = folder / f"{i}_{name}"
        place.mkdir()
        (place / "config.json").write_text(json.dumps(fields))
        save_file({key: value.astype(np.float32) for key, value in tensors.items()}, place / "model.safetensors")
        rows.append({"idx": i, "name": str(i), "path": place.name, "type": f"sentence_transformers.models.{name}"})
    (folder / "modules.json").write_text(json.dumps(rows))
    return folder


def test_every_module_file_changes_the_fingerprint(package: Any) -> None:
    folder = with_dense(package("cls_token", PROMPTS))
    seen = {embedder(folder).fingerprint}

    def change(name: str, old: str, new: str) -> None:
        file = folder / name
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))
        seen.add(embedder(folder).fingerprint)

    change("1_Pooling/config.json", '"pooling_mode_cls_token": true', '"pooling_mode_mean_tokens": true, "x": true')
    change("2_Dense/config.json", "GELU", "Tanh")
    change("3_LayerNorm/config.json", "24", "24.0")
    change("config_sentence_transformers.json", "passage: ", "text: ")
    change("sentence_bert_config.json", "48", "40")
    change("modules.json", "3_LayerNorm", "./3_LayerNorm")
    for name in ("2_Dense", "3_LayerNorm"):
        file = folder / name / "model.safetensors"
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(bytes(data))
        seen.add(embedder(folder).fingerprint)
    assert len(seen) == 9


@pytest.mark.parametrize("activation", ["Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid"])
def test_parts_of_a_vector_pass_through_the_modules(package: Any, activation: str) -> None:
    folder = with_dense(package("mean_tokens"))
    file = folder / "2_Dense" / "config.json"
    place = "linear" if activation == "Identity" else "activation"
    file.write_text(file.read_text().replace("activation.GELU", f"{place}.{activation}"))
    mine = embedder(folder)
    reference = pytest.importorskip("sentence_transformers").SentenceTransformer(str(folder), device="cpu")
    assert same_direction(mine.encode_documents(TEXTS[:1]), reference.encode(TEXTS[:1], normalize_embeddings=True))
    parts = mine.token_parts(TEXTS[0], "documents")
    np.testing.assert_allclose(parts.vector, mine.encode_documents(TEXTS[:1])[0], atol=1e-5)


def test_unknown_activation_is_refused(package: Any) -> None:
    folder = with_dense(package("mean_tokens"))
    file = folder / "2_Dense" / "config.json"
    file.write_text(file.read_text().replace(_GELU, "os.system"))
    with pytest.raises(ModelError, match=r"activation 'os.system': expected one of Identity, Tanh"):
        embedder(folder)


def test_documents_and_queries_may_have_models_of_their_own(tiny_model: Path, tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from sentence_transformers.base.modules import Normalize, Router, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
    from tokenizers import Tokenizer

    static = StaticEmbedding(Tokenizer.from_file(str(tiny_model / "tokenizer.json")), embedding_dim=32)
    router = Router.for_query_document([static], [Transformer(str(tiny_model)), Pooling(32, "cls")])
    reference = sentence_transformers.SentenceTransformer(modules=[router, Normalize()], device="cpu")
    reference.save(str(tmp_path / "model"))
    mine = Embedder(EmbedderConfig(model=str(tmp_path / "model"), dtype="float32")).fit(TEXTS)
    texts = [TEXTS[0], TEXTS[2]]
    assert same_direction(mine.encode_documents(texts), reference.encode_document(texts))
    assert same_direction(mine.encode_queries(texts), reference.encode_query(texts))
    mine.save(tmp_path / "saved")
    again = Embedder.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.encode_queries(texts), mine.encode_queries(texts))
    assert [token.text for token in mine.token_parts("the cat", "queries").tokens] == ["the", "cat"]
    with pytest.raises(ConfigError, match="separate modules for documents and queries, expected 'auto'"):
        Embedder(EmbedderConfig(model=str(tmp_path / "model"), pooling="mean")).fit(TEXTS)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_model2vec_folder(tiny_model: Path, tmp_path: Path, dtype: str) -> None:
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)
    shutil.copy(tiny_model / "tokenizer.json", tmp_path)
    vocabulary = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    table, mapping = 30 * rng.normal(size=(50, 16)), rng.integers(0, 50, size=len(vocabulary))
    weights = rng.uniform(0.1, 1.0, size=len(vocabulary))
    arrays = {"embeddings": table.astype(dtype), "mapping": mapping, "weights": weights.astype(np.float32)}
    save_file(arrays, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))
    mine = Embedder(EmbedderConfig(model=str(tmp_path))).fit(TEXTS)
    ids = [vocabulary[name] for name in ("the", "cat")]
    expected = (arrays["embeddings"][mapping[ids]].astype(float) * weights[ids, None]).mean(axis=0)
    for text in ("the cat", "the \N{SNOWMAN} cat"):  # a model2vec model leaves unknown tokens out
        found = mine.encode_queries([text])[0]
        np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-3)
    assert (mine.dim, mine.device_names()) == (16, ("cpu",))


@pytest.fixture
def own_code(tiny_model: Path, tmp_path: Path) -> Path:
    """A model whose folder contains its own code, which negates the hidden states of BERT."""
    folder = Path(shutil.copytree(tiny_model, tmp_path / "own"))
    (folder / "negated.py").write_text(
        "from transformers import BertModel\n\n\n"
        "class Negated(BertModel):\n"
        "    def forward(self, *args, **kwargs):\n"
        "        output = super().forward(*args, **kwargs)\n"
        "        output.last_hidden_state = -output.last_hidden_state\n"
        "        return output\n"
    )
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "negated.Negated"}}))
    return folder


def test_own_code_runs_only_with_permission(
    own_code: Path, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.delenv("RAGEMBED_TRUST_REMOTE_CODE", raising=False)
    with pytest.raises(ModelError, match=r"needs code of its own .negated.Negated.*--trust-remote-code"):
        embedder(own_code)
    trusted = embedder(own_code, trust_remote_code=True)
    np.testing.assert_allclose(trusted.encode_queries(TEXTS), -embedder(tiny_model).encode_queries(TEXTS), atol=1e-5)
    trusted.save(tmp_path / "saved")
    with pytest.raises(ModelError, match="set RAGEMBED_TRUST_REMOTE_CODE=1 if you trust it"):
        Embedder.load(tmp_path / "saved")
    monkeypatch.setenv("RAGEMBED_TRUST_REMOTE_CODE", "1")
    assert Embedder.load(tmp_path / "saved").fingerprint == trusted.fingerprint
    (own_code / "negated.py").write_text((own_code / "negated.py").read_text() + "\n# changed\n")
    with pytest.raises(ModelError, match="is not the one this embedder was fitted with"):
        Embedder.load(tmp_path / "saved")


def test_the_worst_text_decides_on_bfloat16(package: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragembed.embedder.fast_dtype", lambda devices: "bfloat16")
    monkeypatch.setattr("ragembed.models.choice.is_installed", lambda module: module == "torch")
    folder = package("mean_tokens")
    exact, fast = (
        embedder(folder, dtype=dtype, postprocess=("normalize",)).encode_documents(PROBES)
        for dtype in ("float32", "mixed")
    )
    cosines = 1 - np.square(exact - fast).sum(axis=1) / 2
    assert cosines.min() < np.median(cosines) - 1e-4
    for least, dtype in ((cosines.min() - 1e-6, "mixed"), (cosines.min() + 1e-6, "float32")):
        monkeypatch.setattr("ragembed.extractors.transformer.LEAST_COSINE", least)
        assert Embedder(EmbedderConfig(model=str(folder))).resolved_config().dtype == dtype
