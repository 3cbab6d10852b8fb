"""The search for settings, with fake encoders and searches that look up the quality of settings."""

import numpy as np
import pytest

from ragembed import EmbedderConfig
from ragembed.documents.model import Chunk
from ragembed.errors import RankError
from ragembed.indexes import ChunkRecord, Fusion
from ragembed.indexes.tuning.candidates import ChainChoice, chain_choices
from ragembed.indexes.tuning.choosing import (
    LEAST_GAIN,
    PROBE,
    Settings,
    Trials,
    choose,
    choose_fusion,
    cost,
    macro_mean,
    most_trials,
    screen,
)
from ragembed.indexes.tuning.pool import draw_pool
from ragembed.indexes.tuning.report import Compared
from ragembed.indexes.tuning.run import _outcome
from ragembed.indexes.tuning.sources import SOURCES

NOW = Settings(EmbedderConfig(seed=0), Fusion())
CHAINS = chain_choices(NOW.config)
RAWS = [EmbedderConfig(seed=seed) for seed in range(12)]
SOURCE = ["first sentence"] * 4 + ["b"] * 2


class Quality:
    """A fake encoder and search: ``of(config, fusion)`` is the score of every query."""

    def __init__(self, of):
        self._of = of

    def vectors(self, config):
        if "whiten" in config.postprocess:
            raise RankError("more directions than vectors")
        return config

    def hybrid(self, config, rows, fusion):
        return np.full(len(rows), self._of(config, fusion))

    def dense(self, config, rows):
        return self.hybrid(config, rows, Fusion())


def trials(of, done=lambda _: None):
    quality = Quality(of)
    return Trials(quality, quality, range(len(SOURCE)), SOURCE, done)


def test_finds_the_best_raw_vectors_chain_and_fusion():
    def of(config, fusion):
        right = (config.seed == 7) + (config.postprocess[0] == "abtt:2") + (config.query_fit == "shared")
        return 0.2 * right - abs(fusion.alpha - 0.8)

    chosen = choose(trials(of), NOW, RAWS, CHAINS).settings
    assert (chosen.config.seed, chosen.config.postprocess, chosen.config.query_fit) == (
        7,
        ("abtt:2", "normalize"),
        "shared",
    )
    assert chosen.fusion == Fusion(alpha=0.8)


def test_current_settings_are_chosen_if_all_are_equal():
    assert choose(trials(lambda *_: 0.5), NOW, RAWS, CHAINS).settings == NOW


@pytest.mark.parametrize(("points", "seed"), [(LEAST_GAIN - 0.1, 0), (LEAST_GAIN + 0.1, 5)])
def test_another_embedder_must_gain_much(points, seed):
    found = choose(trials(lambda config, _: 0.5 + points / 100 * (config.seed == 5)), NOW, RAWS, CHAINS).settings
    assert found.config.seed == seed


@pytest.mark.parametrize("by", ["first sentence", "b"])
def test_first_sentences_choose_the_fusion(by):
    class ByFusion(Quality):
        def hybrid(self, config, rows, fusion):
            return np.where(np.array(SOURCE) == by, 0.5 + 0.01 * (fusion.alpha == 0.3), 0.5)

    tried = Trials(ByFusion(None), ByFusion(lambda *_: 0.5), range(len(SOURCE)), SOURCE)
    assert choose_fusion(tried, NOW).settings.fusion.alpha == (0.3 if by == "first sentence" else 0.6)


def test_costs_rise_with_the_work_of_the_store():
    chain = ChainChoice(("zscore",), "shared").on(NOW.config)
    assert cost(NOW, NOW) == 0
    assert cost(Settings(NOW.config, Fusion(alpha=0.1)), NOW) == 1
    assert cost(Settings(chain, Fusion(alpha=0.1)), NOW) == 2
    assert cost(Settings(RAWS[1], Fusion()), NOW) == 3


def test_number_of_trials_is_bounded_and_unfittable_chains_are_skipped():
    made = []
    tried = trials(lambda config, fusion: config.seed + fusion.alpha, made.append)
    choose(tried, NOW, RAWS, CHAINS)
    assert sum(made) <= most_trials(RAWS, CHAINS)
    assert not any("whiten" in settings.config.postprocess for settings in tried.tried)


def test_macro_mean_weights_sources_equally():
    assert macro_mean(np.array([1.0, 1.0, 1.0, 1.0, 0.0, 0.0]), SOURCE) == 0.5


@pytest.mark.parametrize(
    ("mean", "one", "fusion", "embedder"),
    [
        ((4.0, 1.0, 7.0), (4.0, -1.0, 9.0), "better", "better"),
        ((4.0, 0.0, 8.0), (4.0, 0.0, 8.0), "probably better", "no significant difference"),
        ((-4.0, -7.0, -1.0), (1.0, -1.0, 3.0), "no significant difference", "no significant difference"),
        ((1.9, 1.0, 2.8), (1.9, 1.0, 2.8), "better", "no significant difference"),
        ((1.9, -1.0, 4.8), (1.9, -1.0, 4.8), "probably better", "no significant difference"),
        ((-0.5, -1.0, 0.8), (1.9, -1.0, 4.8), "no significant difference", "no significant difference"),
        ((4.0, 1.0, 7.0), (-2.0, -3.0, -1.0), "better", "no significant difference"),
    ],
)
def test_outcome_depends_on_the_gain_and_the_cost(mean, one, fusion, embedder):
    compared = {name: Compared(9, 50.0, 50.0 + each[0], *each, 0.5) for name, each in (("b", one), ("mean", mean))}
    assert _outcome(compared, Settings(NOW.config, Fusion(alpha=0.3)), NOW)[0] == fusion
    for config in (CHAINS[-1].on(NOW.config), RAWS[1]):
        assert _outcome(compared, Settings(config, Fusion()), NOW)[0] == embedder


# Screening


def screened(of, passages):
    asked = []

    def prepare(raws, pool, drawn):
        asked.append((len(pool), set(drawn.half)))
        return Quality(of), Quality(of)

    pool = draw_pool(lambda: passages, 10_000, 0)
    return screen(pool, SOURCES, 0, NOW, RAWS, prepare), asked


def passages(count):
    sentence = "The quick brown fox jumps over the lazy dog"
    return [
        ChunkRecord(str(n), Chunk(f"{sentence} {n}. It is then seen no more by {n}."), f"{n}.txt") for n in range(count)
    ]


def test_screening_keeps_promising_and_current_configurations():
    found, asked = screened(lambda config, _: config.seed / 100, passages(3 * PROBE))
    assert [config.seed for config in found] == [0, 6, 7, 8, 9, 10, 11]
    assert asked == [(PROBE, {0})]


def test_small_pool_is_not_screened():
    found, asked = screened(lambda config, _: config.seed, passages(PROBE))
    assert found == RAWS
    assert asked == []
