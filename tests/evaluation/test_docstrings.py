"""The examples in the docstrings of ragembed.evaluation run."""

import doctest
from importlib import import_module

import pytest

MODULES = (
    *("bootstrap", "classification", "clustering", "comparison", "datasets", "isotropy", "judgements", "nearest"),
    *("retrieval", "runs", "sts", "tasks"),
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = doctest.testmod(import_module(f"ragembed.evaluation.{name}"))
    assert outcome.attempted > 0
    assert outcome.failed == 0
