"""The command ``ragembed papers eval``."""

import csv
import io
import json
import random

import pytest

from ragembed import EmbedderConfig
from tests.conftest import WORDS


def sentences(count, seed=0):
    generator = random.Random(seed)
    return [" ".join(generator.sample(WORDS, 5)) for _ in range(count)]


def write_pairs(file, count=24):
    scores = [i % 6 for i in range(count)]
    rows = zip(scores, sentences(count), sentences(count, 1), strict=True)
    file.write_text("score\tsentence1\tsentence2\n" + "".join(f"{s}\t{a}\t{b}\n" for s, a, b in rows))
    return file


def write_labelled(file):
    rows = [("wing", f"shock wave air {text}") for text in sentences(12)]
    rows += [("pet", f"cat dog bird {text}") for text in sentences(12, 1)]
    file.write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in rows))
    return file


@pytest.fixture
def pairs(in_folder):
    return write_pairs(in_folder / "pairs.tsv")


@pytest.fixture
def evaluate(cli, tiny_model):
    """Call ``ragembed papers eval`` with the tiny model."""

    def call(*args, **named):
        return cli("papers", "eval", *args, "--model", tiny_model, **named)

    return call


# Output


def test_sts_as_json(pairs, evaluate):
    found = json.loads(evaluate("sts", pairs, "--json").stdout)
    assert found["schema_version"] == 1
    assert (found["task"], found["collection"], found["name"], found["pairs"]) == ("sts", "pairs", "minilm", 24)
    assert -100 <= found["spearman"] <= 100
    assert found["config"]["query_fit"] == "shared"
    assert EmbedderConfig.from_dict(found["config"]).query_fit == "shared"


def test_clustering_and_classification_as_json(pairs, in_folder, evaluate):
    file = write_labelled(in_folder / "texts.tsv")
    clusters = json.loads(evaluate("clustering", file, "--runs", 2, "--json").stdout)
    assert (clusters["runs"], len(clusters["run_accuracies"])) == (2, 2)
    assert 50 <= clusters["accuracy"] <= 100
    classes = json.loads(evaluate("classification", file, "--runs", 3, "--json").stdout)
    assert (classes["runs"], len(classes["run_accuracies"])) == (3, 3)
    assert classes["accuracy"] == pytest.approx(sum(classes["run_accuracies"]) / 3)
    found = json.loads(evaluate("classification", pairs, "--runs", 2, "--json").stdout)
    assert {"spearman", "pearson"} < found.keys()
    assert (found["pairs"], found["runs"]) == (24, 2)


def test_positive_score_of_alignment(pairs, evaluate):
    lines = evaluate("isotropy", pairs, "--positive-score", "4").stdout.splitlines()
    assert lines[-1] == "pairs: alignment of 8 pairs with a score of 4 or more"
    assert [line.split(",")[0] for line in lines if ", pairs" in line] == ["iso_score", "uniformity", "alignment"]
    assert evaluate("isotropy", pairs).stdout.splitlines()[-1].endswith("of 4 pairs with a score of 5 or more")
    assert "no pair with a score of 6 or more" in evaluate("isotropy", pairs, "--positive-score", 6, exit_code=2).stderr


# Undefined results and failures


GRID = ("--layers", "each", "--pooling", "cls")


def test_undefined_cell_is_shown_and_the_grid_goes_on(pairs, in_folder, evaluate):
    """Layers -1 and 0 of [CLS] are the same for every text."""
    pytest.importorskip("matplotlib")
    lines = evaluate("sts", pairs, *GRID, "--plot", "plot.png", "--html", "page.html").stdout.splitlines()
    assert lines[3].split().count("undefined") == 2
    assert lines[-2].startswith("undefined: pairs, minilm -1: auto + normalize: all 24 predictions are equal")
    assert (in_folder / "plot.png").exists()
    assert "undefined" in (in_folder / "page.html").read_text()
    found = json.loads(evaluate("sts", pairs, *GRID, "--json").stdout)["results"]
    assert [one["spearman"] is None for one in found] == [True, True, False, False]
    assert "undefined" in found[0]
    rows = list(csv.DictReader(io.StringIO(evaluate("sts", pairs, *GRID, "--format", "csv").stdout)))
    assert rows[0]["spearman"] == rows[2]["undefined"] == ""


def test_failed_grid_keeps_its_results(pairs, in_folder, evaluate, monkeypatch):
    from ragembed.errors import ModelError
    from ragembed.evaluation import tasks

    real, calls = tasks.encode_each, []

    def fail(configs, documents, *given):
        calls.append(documents)
        if len(calls) == 2:
            raise ModelError("no memory left")
        return real(configs, documents, *given)

    monkeypatch.setattr(tasks, "encode_each", fail)
    result = evaluate("sts", pairs, write_pairs(in_folder / "more.tsv"), "--layers", "each", exit_code=2)
    assert result.stdout.splitlines()[0] == "spearman, pairs"
    assert len(result.stdout.splitlines()[3].split("  ")) > 3
    assert "note: the evaluation failed: these are the results so far" in result.stderr
    assert "no memory left" in result.stderr.splitlines()[-1]


# Options


def test_config_file_with_changes(pairs, in_folder, cli, tiny_model):
    (in_folder / "mine.toml").write_text(
        f'model = "{tiny_model}"\nweighting = "uniform"\npostprocess = ["abtt:1", "normalize"]\n'
    )
    found = json.loads(
        cli("papers", "eval", "sts", pairs, "--config", "mine.toml", "--weighting", "idf", "--json").stdout
    )
    assert found["name"] == "mine"
    assert (found["config"]["weighting"], found["config"]["postprocess"]) == ("idf", ["abtt:1", "normalize"])
    (in_folder / "mine.json").write_text(json.dumps({**found["config"], "layers": "1"}))
    again = json.loads(
        cli("papers", "eval", "sts", pairs, "--config", "mine.json", "--layers", "last", "--json").stdout
    )
    assert again["spearman"] == found["spearman"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--preset", "nope"], "unknown preset 'nope': expected one of minilm, t4"),
        (["--layers", "first+7"], "the model has no layer 7"),
        (["--pooling", "masks"], "needs a template with mask tokens"),
        (["--preset", "re", "--preset", "bert", "--layers", "1"], "preset 're': layers is '1', but extractor 're'"),
        (["--preset", "bert", "--config", "mine.toml"], "got both the preset 'bert' and the file mine.toml"),
        (["--config", "broken.toml"], "broken.toml: the configuration is not valid TOML"),
        (["--config", "mine.toml", "--avg-corpus", "mine.toml"], "mine.toml: avg_corpus is 'mine.toml', but extractor"),
        (["--config", "corpus.toml"], "the corpus missing.txt cannot be read"),
        (["--runs", "3"], "No such option"),
        (["--plot", "plot.png"], "nothing to plot"),
        (["--layers", "1", "--layers", "2", "--plot", "no/plot.png"], "no/plot.png cannot be written: No such file"),
    ],
)
@pytest.mark.usefixtures("nothing_is_encoded")
def test_invalid_options_are_errors_before_encoding(options, message, pairs, in_folder, evaluate):
    if "--plot" in options:
        pytest.importorskip("matplotlib")
    (in_folder / "mine.toml").write_text('weighting = "idf"\n')
    (in_folder / "broken.toml").write_text("weighting = idf\n")
    (in_folder / "corpus.toml").write_text('weighting_corpus = "missing.txt"\n')
    result = evaluate("sts", pairs, *options, exit_code=2)
    assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.output


# Plots


def test_results_are_printed_if_the_plot_fails(pairs, evaluate, monkeypatch):
    pytest.importorskip("matplotlib")

    def full(*given, **named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    result = evaluate("sts", pairs, "--layers", "each", "--plot", "plot.png", exit_code=2)
    assert result.stdout.startswith("spearman, pairs")
    assert "plot.png cannot be written: No space left on device" in result.stderr
