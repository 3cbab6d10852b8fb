"""``ragembed status --drift``: what it prints, and the exit status that says what is to be done."""

import json
from dataclasses import replace

import pytest

from ragembed.indexes.indexing.drift import DriftReport, IdfShift, Vocabulary

REPORT = DriftReport(
    verdict="keep",
    reasons=(),
    notes=(),
    vectors=1200,
    added=200,
    removed=3,
    texts=1200,
    vocabulary=Vocabulary(0.125, 0.02, 0.001, 0.0, 0.3, 0.25),
    movers=(IdfShift("wing", 6.2, 2.1), IdfShift("lock", 1.0, 1.5)),
    weight_shift=0.031,
    unfitted=None,
    mean_shift=0.25,
    overlap=0.912,
    chance=0.97,
    queries=256,
    searched=1200,
)


@pytest.fixture
def reported(monkeypatch):
    def give(report):
        monkeypatch.setattr("ragembed.cli.commands.status.measure_drift", lambda store: report)

    return give


def test_what_is_printed(indexed, cli, reported):
    reported(REPORT)
    lines = cli("status", "--drift").stdout.splitlines()
    assert [line[:15].strip() for line in lines] == [
        "verdict",
        "vectors",
        "counted",
        "unseen tokens",
        "unknown tokens",
        "word pieces",
        "idf movers",
        "token weights",
        "mean shift",
        "overlap@10",
    ]
    text = "\n".join(lines)
    assert "keep: nothing is to be done" in text
    assert "1,200, 200 added and 3 removed since the fit" in text
    assert "12.5% of those added (2.0% expected of more of the same)" in text
    assert "30.0% of those added (25.0% at the fit)" in text
    assert "wing 6.2 → 2.1, lock 1.0 → 1.5" in text
    assert "0.912 with what a refit would find (by chance 0.970), 256 pseudo-queries in 1,200 vectors" in text


@pytest.mark.parametrize(
    ("verdict", "exit_code", "todo"), [("refit", 3, "ragembed refit"), ("rebuild", 4, "index again")]
)
def test_the_exit_status_says_what_is_to_be_done(indexed, cli, reported, verdict, exit_code, todo):
    reported(replace(REPORT, verdict=verdict, reasons=("it has moved",)))
    first = cli("status", "--drift", exit_code=exit_code).stdout.splitlines()[0]
    assert f"{verdict}: it has moved; " in first
    assert todo in first
    for output in ("json", "jsonl"):
        found = json.loads(cli("status", "--drift", "--format", output, exit_code=exit_code).stdout)
        assert (found["verdict"], found["schema_version"]) == (verdict, 1)
        assert found["movers"][0] == {"token": "wing", "fitted": 6.2, "now": 2.1}


def test_a_small_store_is_kept_and_says_why(indexed, cli):
    result = cli("status", "--drift")
    assert result.stdout.startswith("verdict        keep")
    assert "note: " in result.stderr


def test_two_reports_at_once_are_refused(indexed, cli):
    assert "reports of their own" in cli("status", "--drift", "--skipped", exit_code=2).output


def test_without_a_store_it_is_an_error(in_folder, cli):
    assert "no store at" in cli("status", "--drift", exit_code=2).output
