"""Fixtures: one Ray cluster for all quick tests."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.distributed.ray_fixtures import SCENARIOS, documents, run_in_namespace

__all__ = ["documents", "on_a_cluster", "run_in_namespace"]

# Other processes unpickle objects by importing their modules, so the modules must be on their path.
sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="session")
def on_a_cluster(run_in_namespace, documents, made_once):
    """The results of the quick scenarios on a cluster of one node."""

    def make(folder):
        found = run_in_namespace(SCENARIOS / "quick_scenarios.py", documents, timeout=500)
        (folder / "found.json").write_text(json.dumps(found))

    return json.loads((made_once("ray", make) / "found.json").read_text())
