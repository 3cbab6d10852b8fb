"""Many random changes and searches of a store with each kind of index, beside a dictionary."""

from __future__ import annotations

import numpy as np
import pytest

from tests.indexes.random_operations import KINDS, measure
from tests.slow.helpers import scaled

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_agrees_with_a_dictionary_through_many_operations(kind, tmp_path):
    tally = measure(tmp_path, kind, scaled(600), seed=0)
    assert tally.wrong == []
    assert np.mean(tally.overlaps or [1.0]) >= 0.98
