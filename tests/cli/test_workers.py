"""``ragembed index`` with workers."""

import json
import sys

import pytest


@pytest.fixture
def five(in_folder):
    (in_folder / "docs").mkdir()
    for i in range(5):
        (in_folder / "docs" / f"{i}.md").write_text(f"the lock of store {i} is free\n")
    return in_folder


@pytest.mark.skipif(sys.platform == "win32", reason="slow to begin processes")
def test_report_with_workers(five, cli):
    report = json.loads(cli("index", "docs", "--extractor", "re:dim=16", "--workers", 2, "--json").stdout)
    assert [(stage["stage"], stage["items"]) for stage in report["stages"]] == [("read", 5), ("fit", 5), ("embed", 5)]
    assert json.loads(cli("index", "--workers", 2, "--json").stdout)["stages"] == []
    assert json.loads(cli("index", "--json").stdout)["unchanged"] == 5


def test_dry_run_needs_no_workers(five, cli):
    assert "5 chunks to process" in cli("index", "docs", "--extractor", "re:dim=16", "--workers", 2, "--dry-run").stderr
    assert not (five / ".ragembed").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--address", "auto"), "--address and --num-gpus apply only to Ray: add --engine ray"),
        (("--num-gpus", "1", "--workers", "2"), "--address and --num-gpus apply only to Ray"),
        (("--work", "w"), "--engine processes and --work apply only to worker processes: add --workers N"),
        (("--engine", "processes"), "apply only to worker processes: add --workers N"),
        (("--workers", "0"), "0 is not in the range x>=1"),
    ],
)
def test_conflicting_worker_options_are_errors(five, cli, options, message):
    assert message in cli("index", "docs", *options, exit_code=2).stderr
    assert not (five / ".ragembed").exists()
