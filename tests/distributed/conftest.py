"""Fixtures: one Ray cluster for all quick tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.distributed.ray_fixtures import SCENARIOS, documents, run_in_namespace, stores

__all__ = ["documents", "on_a_cluster", "run_in_namespace", "stores"]

# Other processes unpickle objects by importing their modules, so the modules must be on their path.
sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="session")
def on_a_cluster(run_in_namespace, documents, stores):
    """The results of the quick scenarios on a cluster of one node."""
    return run_in_namespace(SCENARIOS / "quick_scenarios.py", documents, stores, timeout=500)
