"""The examples in docstrings run."""

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "ann.choosing",
        "ann.records",
        "indexing.drift",
        "indexing.refit",
        "indexing.run",
        "indexing.scan",
        "tuning.report",
    ],
)
def test_examples_run(module):
    found = doctest.testmod(import_module(f"ragembed.indexes.{module}"))
    assert found.attempted > 0
    assert found.failed == 0
