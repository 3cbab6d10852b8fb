"""Pages about evaluations."""

from __future__ import annotations

import json
import re

import pytest

from ragembed.errors import ConfigError
from ragembed.reports.page import check_output, evaluation_page, read_queries, read_results
from tests.reports.test_store_report import Elements

DIFFERENCE = {"difference": 1.5, "low": 0.5, "high": 2.5, "p_value": 0.01}
RESULTS = [
    {
        "task": "sts",
        "collection": "a<b>",
        "name": "mini",
        "spearman": 60.0,
        "pairs": 99,
        "config": {"weighting": "idf"},
    },
    {
        "task": "sts",
        "collection": "a<b>",
        "name": "mini",
        "spearman": 61.5,
        "pairs": 99,
        "config": {"weighting": "sif"},
        "difference_to_first": DIFFERENCE,
    },
]
COMPARED = {
    "task": "retrieval",
    "collection": "cran",
    "queries": 225,
    "a": {"name": "dense", "ndcg@10": 40.0},
    "b": {"name": "hybrid", "ndcg@10": 41.5},
    "differences": {"ndcg@10": {**DIFFERENCE, "significant": True}},
}

DIAGNOSIS = {
    "findings": [{"title": "files changed", "severity": "problem", "detail": "old", "command": "ragembed index"}]
}


def test_evaluations_have_tables_with_differences():
    found = Elements(evaluation_page("sts", RESULTS))
    for text in ("a<b>", "mini, weighting idf", "mini, weighting sif", "60.0", "+1.5", "+0.5 to +2.5"):
        assert text in found.text
    assert [each["class"] for tag, each in found.elements if tag == "circle"] == ["more"]
    compared = Elements(evaluation_page("retrieval", [COMPARED]))
    assert "A is dense, and B is hybrid" in compared.text
    assert not any(tag == "script" for tag, _ in [*found.elements, *compared.elements])


@pytest.mark.parametrize("value", [{"task": "sts", "results": RESULTS}, COMPARED, DIAGNOSIS, {"findings": []}])
def test_results_become_sections_of_a_report(tmp_path, value):
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"schema_version": 1, **value}))
    assert read_results(file).get("id") in ("evaluation-sts", "evaluation-retrieval", "findings")


@pytest.mark.parametrize(
    "text", ["", "[1]", "{}", '{"candidates": 1}', '{"task": "sts", "results": [{"task": 1}]}', "\xff"]
)
def test_other_files_are_no_results(tmp_path, text):
    file = tmp_path / "results.json"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match="results"):
        read_results(file)


def test_two_evaluations_have_different_ids(cli, store, tmp_path):
    file = tmp_path / "results.json"
    file.write_text(json.dumps(COMPARED))
    cli("report", "--store", store, "--results", file, "--results", file, "--out", tmp_path / "a.html")
    ids = [each["id"] for _, each in Elements((tmp_path / "a.html").read_bytes()).elements if "id" in each]
    assert len(ids) == len(set(ids))
    assert {"evaluation-retrieval", "evaluation-retrieval-2"} <= set(ids)


def test_eval_checks_the_page_first(cli, tmp_path):
    (tmp_path / "mine.html").write_text("mine")
    for command in (("papers", "eval", "sts", __file__), ("eval", "retrieval", tmp_path)):
        assert "did not write it" in cli(*command, "--html", tmp_path / "mine.html", exit_code=2).output


def test_a_page_replaces_a_page(cli, tmp_path, tiny_model):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("score\tsentence1\tsentence2\n5\tthe cat\ta cat\n1\tthe dog\tair flow\n3\tthe bird\tthe fish\n")
    page = tmp_path / "sts.html"
    for _ in range(2):
        weightings = ("--weighting", "uniform", "--weighting", "idf")
        cli("papers", "eval", "sts", pairs, "--model", tiny_model, *weightings, "--html", page)
    assert "weighting uniform" in Elements(page.read_bytes()).text
    check_output(page)


def test_queries_are_lines_tables_or_json(tmp_path):
    file = tmp_path / "queries.txt"
    file.write_text(
        '\ufeffone query\n\nan answer\tdocs/a.md\n{"query": "json", "path": "x"}\none query\n', encoding="utf-8"
    )
    assert read_queries(file) == ["one query", "an answer", "json"]
    for text, problem in {
        "\n": "is empty",
        "a\n{": "queries.txt, line 2",
        '{"x": 1}': "no query",
        "\tx": "no query",
    }.items():
        file.write_text(text)
        with pytest.raises(ConfigError, match=re.escape(problem)):
            read_queries(file)
