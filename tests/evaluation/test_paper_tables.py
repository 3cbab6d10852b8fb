"""The parts of benchmarks/paper_tables.py that need no model: the published figures, and what stands beside what."""

import importlib.util
import sys
from pathlib import Path
from statistics import fmean

import pytest

from ragembed.evaluation import LabelledTexts, SentencePairs
from ragembed.evaluation.tasks import ClusteringTask, StsTask

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def tables():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location("paper_tables", BENCHMARKS / "paper_tables.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules["paper_tables"] = module
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in ("paper_tables", "report"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("task", "weighting", "steps", "printed"),
    [
        ("sts", "avg.", "none", (61.3, 62.3, 61.3, 61.4, 56.4, 56.7, 60.6, 50.3)),
        ("sts", "idf^W", "zscore", (68.6, 68.1, 69.8, 70.6, 69.5, 66.4, 65.9, 66.4)),
        ("sts", "idf^T", "quantile-u", (69.5, 71.6, 68.9, 69.5, 68.4, 56.2, 61.0, 63.0)),
        ("sts", "-biases", "none", (64.7, 66.0, 68.2, 69.3, 67.3, 54.1, 57.5, 63.7)),
        ("sts", "[MASK]", "quantile-u", (65.6, 70.5)),
        ("clustering", "avg.", "whiten^W", (49.0, 49.8, 56.2, 58.7, 55.0, 50.4, 50.1, 41.5)),
        ("clustering", "idf^T", "quantile-u^W", (57.6, 60.0, 63.1, 64.4, 60.2, 54.6, 56.0, 44.4)),
    ],
)
def test_the_figures_have_the_means_that_the_paper_prints(tables, task, weighting, steps, printed):
    """Tables 4 and 5 are the means of tables A1 to A14."""
    published = tables.read_published()
    for column, mean in zip(tables.COLUMNS, printed, strict=False):
        values = [published[task, data, weighting, steps, column] for data in tables.SIZES[task]]
        assert fmean(values) == pytest.approx(mean, abs=0.0501), column


def test_every_row_that_is_measured_has_its_printed_row(tables):
    published = tables.read_published()
    for column in tables.COLUMNS:
        rows = tables.rows_of(column, wikitext=True)
        assert len(set(rows)) == len(rows) == len({row.name for row in rows})
        missing = [row.name for row in rows if ("sts", "sts13", *row.printed, column) not in published]
        assert missing == [row.name for row in rows if row.steps == "abtt:2"]


def test_idf_is_named_by_its_corpus_and_compared_with_the_other_superscript(tables):
    own, other = tables.Row("idf", "zscore"), tables.Row("idf", "none", wikitext_idf=True)
    assert (own.name, own.printed) == ("idf of the collection + zscore", ("idf^W", "zscore"))
    assert (other.name, other.printed) == ("idf of Wikitext", ("idf^T", "none"))
    fitted = tables.Row("uniform", "whiten", wikitext_steps=True)
    assert (fitted.name, fitted.printed) == ("avg. + whiten of Wikitext", ("avg.", "whiten^W"))


def test_configurations_of_the_cells(tables):
    setting = tables.Setting(None, "avg.txt", "wiki.txt", "vectors.txt")
    config = setting.config("T4", tables.Row("[MASK]", "zscore"))
    assert (config.template, config.pooling, config.weighting, config.sides) == ("t4", "masks", "uniform", "one")
    assert config.avg_corpus is None
    mixed = setting.config("BERT+Avg.", tables.Row("idf", "none", wikitext_idf=True))
    assert (mixed.extractor, mixed.layers, mixed.model) == ("bert+avg", "first+last", "bert-base-uncased")
    assert (mixed.avg_corpus, mixed.weighting_corpus, mixed.postprocess) == ("avg.txt", "wiki.txt", ())
    assert setting.config("B2S-100", tables.Row("uniform", "none")).extractor == "words:drop=100"
    assert setting.config("B2S", tables.Row("uniform", "none")).model == "vectors.txt"


def test_figures_of_another_model_are_not_compared(tables):
    def comparable(model):
        setting = tables.Setting(model, None, None, "vectors.txt")
        return [column for column in tables.COLUMNS if setting.comparable(column)]

    assert comparable(None) == comparable("/models/bert-base-uncased") == list(tables.COLUMNS)
    assert comparable("roberta-base") == ["B2S", "B2S-100"]
    assert comparable("sentence-transformers/all-MiniLM-L6-v2") == ["B2S", "B2S-100", "RE"]


def lines(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n")]


def test_a_mean_is_over_the_collections_that_the_paper_has(tables):
    values = {tables.Row("uniform", "none"): {"STS13": 50.0, "mine": 1.0, "sts14": 50.0}}
    text = tables.column_table("sts", "RE", values, tables.read_published())
    assert lines(text)[0] == ["RE", "STS13", "mine", "sts14", "average of STS13, sts14"]
    assert lines(text)[2] == ["avg.", "50.0 (48.8, +1.2)", "1.0", "50.0 (48.2, +1.8)", "50.0 (48.5, +1.5)"]
    assert lines(tables.column_table("sts", "RE", values, {}))[2] == ["avg.", "50.0", "1.0", "50.0", "33.7"]


def test_a_mean_that_is_printed_alone_stands_beside_all_collections(tables):
    row, published = tables.Row("uniform", "abtt:2"), tables.read_published()
    everything = {row: dict.fromkeys(tables.SIZES["clustering"], 40.0)}
    assert lines(tables.column_table("clustering", "RE", everything, published))[2][-1] == "40.0 (36.5, +3.5)"
    some = {row: {"agnews": 40.0, "tweet": 40.0}}
    assert lines(tables.column_table("clustering", "RE", some, published))[2][-1] == "40.0"


def test_another_number_of_records_is_another_collection(tables):
    setting = tables.Setting(None, None, None, None)
    pairs = SentencePairs(("a",) * 1500, ("b",) * 1500, (1.0,) * 1500)
    values = {"RE": {tables.Row("uniform", "none"): {"sts13": 48.0}}}
    whole = tables.section("sts", [StsTask("sts13", pairs)], values, setting, tables.read_published())
    assert "| avg. | 48.0 (48.8, -0.8) |" in whole
    cut = SentencePairs(*(part[:9] for part in (pairs.sentences1, pairs.sentences2, pairs.scores)))
    part = tables.section("sts", [StsTask("sts13", cut)], values, setting, tables.read_published())
    assert "| avg. | 48.0 |" in part
    assert "No figures of the paper for sts13: the number of records is not that of the paper." in part
    texts = ClusteringTask("agnews", LabelledTexts(("a",) * 8000, ("x",) * 8000), runs=3)
    values = {"RE": {tables.Row("uniform", "none"): {"agnews": 28.0}}}
    text = tables.section("clustering", [texts], values, setting, tables.read_published())
    assert "Mean of 3 runs of k-means" in text
    assert "| avg. | 28.0 (28.0, +0.0) |" in text
