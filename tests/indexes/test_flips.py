"""Every altered byte is reported or harmless: some bytes of each file of a store, and many in the slow tests."""

import pytest

from tests.flips import KINDS, assert_flips_are_noticed, make_store, without_log


@pytest.fixture(scope="module")
def killed(tmp_path_factory, tiny_config):
    return make_store(tmp_path_factory.mktemp("flips"), tiny_config)


@pytest.fixture(scope="module")
def closed(killed, tmp_path_factory):
    return without_log(killed, tmp_path_factory.mktemp("closed"))


@pytest.mark.parametrize("flips", [10, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_altered_byte_is_reported_or_harmless(killed, closed, tmp_path, kind, flips):
    template = killed if kind == "log" else closed
    assert assert_flips_are_noticed(template, tmp_path, KINDS[kind], flips, seed=flips) > 0
