"""``ragembed eval`` reproduces published figures of random embeddings."""

import json

import pytest

PUBLISHED = {
    "sts13": {"avg.": (48.8, 55.9, 54.8, 75.1), "idf": (72.5, 73.0, 73.4, 74.6), "-biases": (61.3,)},
    "sts14": {"avg.": (48.2, 53.5, 52.3, 68.3), "idf": (67.6, 67.8, 66.4, 67.9), "-biases": (64.7,)},
}
"""Spearman correlation of random embeddings by weighting, for none, zscore, quantile-u and whiten (tables A2 and A3 of
Stankevičius & Lukoševičius 2024; the rows with idf fitted on the sentences of the task)."""
ACCURACY = {"agnews": 28.0, "searchsnippets": 23.3}
"""Clustering accuracy of random embeddings with uniform weights (tables A9 and A12)."""


@pytest.mark.usefixtures("needs_minilm")
@pytest.mark.parametrize(
    ("year", "row"),
    [
        pytest.param(year, row, marks=() if (year, row) == ("sts13", "-biases") else pytest.mark.slow)
        for year, rows in PUBLISHED.items()
        for row in rows
    ],
)
def test_random_embeddings_have_the_published_correlation(year, row, collections, cli):
    """The default model has the vocabulary of bert-base-uncased. The tolerance allows for random vectors."""
    steps = [part for name in ("none", "zscore", "quantile-u", "whiten") for part in ("--postprocess", name)]
    grid = {"avg.": ["uniform", *steps], "idf": ["idf", *steps], "-biases": ["-biases", *steps[:2]]}[row]
    file = collections / "sts" / f"{year}.tsv"
    output = cli("papers", "eval", "sts", file, "--preset", "re", "--weighting", *grid, "--format", "jsonl").stdout
    found = [json.loads(line)["spearman"] for line in output.splitlines()]
    assert found == pytest.approx(PUBLISHED[year][row], abs=2.0 if row == "avg." else 1.0)


@pytest.mark.slow
@pytest.mark.usefixtures("needs_minilm")
@pytest.mark.parametrize("name", ACCURACY)
def test_random_embeddings_have_the_published_accuracy(name, collections, cli):
    """One run each, and without stackoverflow, which takes minutes."""
    file = collections / "clustering" / f"{name}.tsv"
    options = ["--preset", "re", "--weighting", "uniform", "--postprocess", "none", "--runs", 1]
    found = json.loads(cli("papers", "eval", "clustering", file, *options, "--json").stdout)
    assert found["accuracy"] == pytest.approx(ACCURACY[name], abs=4.0)
