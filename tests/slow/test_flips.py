"""No changed answer goes unnoticed: many altered bytes of each file of a store."""

import pytest

from tests.flips import KINDS, assert_flips_are_noticed, make_store, without_log

pytestmark = pytest.mark.slow

FLIPS = 300


def test_altered_bytes_are_reported_or_change_no_answer(tmp_path, tiny_config):
    killed = make_store(tmp_path, tiny_config)
    closed = without_log(killed, tmp_path / "closed")
    for seed, (kind, pattern) in enumerate(KINDS.items()):
        template = killed if kind == "log" else closed
        assert assert_flips_are_noticed(template, tmp_path / "copies", pattern, FLIPS, seed) > 0
