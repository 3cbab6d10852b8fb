"""``ragembed status --drift``: output and exit status."""

import json
from dataclasses import replace

import pytest

from ragembed.indexes.doctor.drift import DriftReport

REPORT = DriftReport(
    verdict="keep",
    reasons=(),
    notes=(),
    vectors=1200,
    added=200,
    removed=3,
    unseen=0.125,
    weight_shift=0.031,
    overlap=0.912,
    chance=0.97,
)


@pytest.fixture
def reported(monkeypatch):
    def give(report):
        monkeypatch.setattr("ragembed.cli.commands.status.measure_drift", lambda store: report)

    return give


def test_drift_report_as_text(indexed, cli, reported):
    reported(REPORT)
    lines = cli("status", "--drift").stdout.splitlines()
    assert [line[:15].strip() for line in lines] == [
        "verdict",
        "vectors",
        "unseen tokens",
        "token weights",
        "overlap@10",
    ]
    text = "\n".join(lines)
    assert "keep: nothing to do" in text
    assert "1,200; 200 added and 3 removed since the fit" in text
    assert "12.5% of the tokens of the texts are new since the fit" in text
    assert "0.912 with the results after a refit (0.970 expected by chance)" in text


@pytest.mark.parametrize(
    ("verdict", "exit_code", "todo"), [("refit", 3, "ragembed refit"), ("rebuild", 4, "index again")]
)
def test_drift_exit_status(indexed, cli, reported, verdict, exit_code, todo):
    reported(replace(REPORT, verdict=verdict, reasons=("it has moved",)))
    first = cli("status", "--drift", exit_code=exit_code).stdout.splitlines()[0]
    assert f"{verdict}: it has moved; " in first
    assert todo in first
    for output in ("json", "jsonl"):
        found = json.loads(cli("status", "--drift", "--format", output, exit_code=exit_code).stdout)
        assert (found["verdict"], found["schema_version"]) == (verdict, 1)


def test_two_reports_are_an_error(indexed, cli):
    assert (
        "got more than one of --drift, --settings and --skipped"
        in cli("status", "--drift", "--skipped", exit_code=2).output
    )
