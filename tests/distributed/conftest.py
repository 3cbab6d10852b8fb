"""Fixtures: one Ray cluster for all quick tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.distributed.ray_fixtures import documents, results_once, run_in_namespace

__all__ = ["documents", "on_a_cluster", "results_once", "run_in_namespace"]

# Other processes unpickle objects by importing their modules, so the modules must be on their path.
sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="session")
def on_a_cluster(results_once, documents):
    """The results of the quick scenarios on a cluster of one node."""
    return results_once("quick_scenarios.py", documents)
