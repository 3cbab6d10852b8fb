"""The examples in docstrings of public names run and give the output shown."""

import doctest
from importlib import import_module

import pytest

MODULES = (
    "ragembed",
    "ragembed.config.settings",
    "ragembed.embedder",
    "ragembed.postprocess.chain",
    "ragembed.postprocess.estimators",
    "ragembed.postprocess.normalize",
)


@pytest.mark.usefixtures("needs_minilm")
@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
