"""``ragembed tune``: reports, and searches with the applied settings."""

import csv
import io
import json

import pytest

from ragembed.indexes import Fusion, Store, apply_settings, tuning
from ragembed.indexes.tuning import choosing, run
from tests.tuning.corpora import TOPICS, make_store


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune")
    make_store(folder, common=20.0)
    return folder


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("few"), common=20.0, topics=20)


@pytest.fixture(scope="module")
def report(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "QUERIES", 30)
        patch.setattr(choosing, "_ALPHAS", (0.3, 0.9))
        return tuning.tune_store(folder / "store", encode=False)


@pytest.mark.parametrize("output", ["text", "json", "csv"])
def test_report_in_each_format(cli, folder, report, output, monkeypatch):
    def tune_store(path, *, encode, apply, **_settings):
        assert (path, encode, apply) == (folder / "store", False, False)
        return report

    monkeypatch.setattr(tuning, "tune_store", tune_store)
    done = cli("tune", "--store", folder / "store", "--refit-only", "--format", output)
    if output == "text":
        assert "better: on the held-out documents" in done.stdout
        assert "first sentence" in done.stdout
        assert "- feedback: pseudo-queries cannot decide it" in done.stdout
        # The labels and their number are limited in a terminal only.
        assert all(candidate.label in done.stdout for candidate in report.candidates)
        assert len(report.candidates) > 10
        assert "ragembed tune --store" in done.stderr
        assert done.stderr.rstrip().endswith("--refit-only --apply")
    elif output == "json":
        found = json.loads(done.stdout)
        assert found["schema_version"] == 1
        assert found["outcome"] == "better"
        assert not found["applied"]
        assert found["held_out"]["mean"]["low"] > 0
        assert found["chosen"] in found["candidates"]
        assert found["seed"] == 0
    else:
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        assert [row["label"] for row in rows].count("now") == 1
        [chosen] = [row for row in rows if row["chosen"] == "True"]
        assert float(chosen["mean.difference"]) > 0
        assert chosen["needs"] == "refit"


def test_too_few_chunks_change_nothing(cli, few):
    with Store.open(few) as store:
        before = store.status()
    done = cli("tune", "--store", few, "--apply")
    assert "too little: the store has 20 chunks: expected 50" in done.stdout
    assert "to apply these settings" not in done.stderr
    with Store.open(few) as store:
        assert store.status() == before


def test_unreadable_query_file_is_an_error(cli, few, in_folder):
    (in_folder / "log").write_text('{"query": \n')
    assert "log:1" in cli("tune", "--store", few, "--queries", "log", exit_code=2).stderr


def test_query_and_status_use_the_fusion_of_the_store(cli, few):
    query = "wbbb wbbc wbbf"

    def scores(*options):
        done = cli("query", query, "--store", few, "--json", *options)
        return [(hit["id"], hit["score"]) for hit in json.loads(done.stdout)["results"]]

    plain = scores()
    assert "alpha 0.6, feedback 0.75, hubness 0.5\n" in cli("status", "--store", few).stdout
    with Store.open(few) as store:
        config = store.embedder.config
    apply_settings(few, config, Fusion(alpha=0.2, feedback=0.0))
    assert "alpha 0.2, feedback 0, hubness 0.5 (tuned)" in cli("status", "--store", few).stdout
    assert scores() != plain
    assert scores("--alpha", 0.6, "--feedback", 0.75) == plain
    assert scores("--alpha", 0.2) == scores()
    assert len(plain) == min(10, TOPICS)
