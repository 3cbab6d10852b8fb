"""The embedding options of ``ragembed index``, for new and for existing stores."""

import json
import shutil

import pytest


@pytest.mark.parametrize(
    "options",
    [
        [
            "--extractor",
            "bert+avg:w=0.25",
            "--layers",
            "1+2",
            "--postprocess",
            "zscore,normalize",
            "--query-fit",
            "shared",
        ],
        ["--weighting", "-biases", "--pooling", "mean", "--no-special-tokens"],
        ["--config", "mine.toml"],
        ["--document-prompt", "passage: ", "--query-prompt", "query: ", "--pooling", "mean+max"],
        ["--truncate-dim", "16", "--normalize"],
    ],
)
def test_index_with_embedding_options(options, docs, cli, tiny_model, in_folder):
    (in_folder / "mine.toml").write_text('extractor = "re:dim=64"\nweighting = "sif"\npostprocess = ["normalize"]\n')
    cli("index", docs, "--model", tiny_model, *options)
    found = json.loads(cli("query", "the lock of the store", "--json", "--mode", "dense").stdout)["results"]
    assert {one["path"] for one in found} == {"docs/locks.md", "docs/wings.txt"}
    assert cli("index", docs, "--model", tiny_model, *options).stderr.rstrip().split(", ")[-1].startswith("0 embedded")
    assert "0 embedded" in cli("index", docs).stderr


def test_index_with_template(docs, cli, tiny_model, in_folder):
    from tokenizers import Tokenizer

    model = in_folder / "model"
    shutil.copytree(tiny_model, model)
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.add_special_tokens(["[MASK]"])
    tokenizer.save(str(model / "tokenizer.json"))
    cli("index", docs, "--model", model, "--template", "the [X] is [M]", "--pooling", "masks", "--weighting", "uniform")
    assert json.loads(cli("query", "lock", "--json", "--mode", "dense").stdout)["results"]
    assert json.loads(cli("status", "--json").stdout)["embedder"]["config"]["template"] == "the [X] is [M]"
    assert "0 embedded" in cli("index", docs).stderr


def test_model_with_a_package(docs, cli, tiny_model, in_folder):
    model = in_folder / "model"
    shutil.copytree(tiny_model, model)
    modules = [{"type": f"sentence_transformers.models.{name}", "path": name} for name in ("Transformer", "Pooling")]
    (model / "modules.json").write_text(json.dumps([{**modules[0], "path": ""}, modules[1]]))
    (model / "Pooling").mkdir()
    (model / "Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    prompts = {"query": "query: ", "document": "passage: ", "cluster": "cluster: "}
    (model / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    noted = cli("index", docs, "--model", model, "--preset", "bert", "--store", "bert").stderr
    assert "note: the settings leave out the pooling 'cls' and the prompts 'passage: [X]' and 'query: [X]' of" in noted
    cli("index", docs, "--model", model, "--prompt-name", "cluster")
    assert "0 embedded" in cli("index", docs, "--model", model, "--prompt-name", "cluster").stderr
    config = json.loads(cli("status", "--json").stdout)["embedder"]["config"]
    assert (config["template"], config["pooling"], config["weighting"]) == ("cluster: [X]", "cls", "uniform")
    refused = cli("index", docs, "--query-prompt", "other: ", exit_code=2).stderr
    assert "query_template" in refused
    status = cli("status").stdout
    assert "template=cluster: [X], pooling=cls, modules=False" in status


def test_options_that_conflict_with_the_store_are_errors(docs, cli, tiny_model):
    cli("index", docs, "--model", tiny_model, "--preset", "re")
    result = cli("index", docs, "--model", tiny_model, "--preset", "bert", exit_code=2)
    assert len(result.stderr.strip().splitlines()) == 1
    assert "extractor" in result.stderr or "weighting" in result.stderr
    assert "Traceback" not in result.output
    assert "2 unchanged" in cli("index", docs).stderr


def test_setting_that_extractor_does_not_use_is_an_error(docs, cli, tiny_model, in_folder):
    result = cli("index", docs, "--model", tiny_model, "--preset", "re", "--template", "t0", exit_code=2)
    assert "preset 're': template is 't0', but extractor 're' does not use it: leave it out" in result.stderr
    assert not (in_folder / ".ragembed").exists()


def test_options_change_settings_of_the_store(docs, cli, tiny_model):
    cli("index", docs, "--model", tiny_model, "--preset", "re")
    assert "2 unchanged" in cli("index", docs, "--postprocess", "normalize").stderr
    result = cli("index", docs, "--postprocess", "zscore", exit_code=2)
    assert "was made with the postprocess normalize, not zscore" in result.stderr
    assert "change it with 'ragembed refit --postprocess zscore'" in result.stderr
