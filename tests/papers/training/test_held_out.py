"""Held-out definitions, ranks and accuracy, compared with simple computations."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ragembed.errors import ConfigError
from ragembed.models.tokenizer import TextTokenizer
from ragembed.papers.training.dictionary import Dictionary, hold_out
from ragembed.papers.training.encoder import Arithmetic, load_encoder
from ragembed.papers.training.entries import EntrySpace, accuracy, ranks
from ragembed.papers.training.glosses import make_windows

CPU = Arithmetic(torch.device("cpu"))


@given(
    st.lists(st.sets(st.sampled_from("abcdefgh"), min_size=1), min_size=1, max_size=8),
    st.integers(0, 5),
)
def test_held_out_definitions_are_removed_from_all_entries(definitions, seed):
    dictionary = Dictionary(tuple(map(str, range(len(definitions)))), tuple(tuple(sorted(d)) for d in definitions))
    drawn = hold_out(dictionary, None, seed)[1]
    assert len(drawn) <= len(set().union(*definitions)) // 20
    most = next(count for count in range(9) if count == 8 or not _can_hold_out(dictionary, count + 1, seed))
    kept, drawn = hold_out(dictionary, most, seed)
    assert len(drawn) == most
    assert kept.entries == dictionary.entries
    assert all(kept.definitions)
    for each in drawn:
        assert each.entries == tuple(i for i, d in enumerate(definitions) if each.definition in d)
        assert all(each.definition not in d for d in kept.definitions)


def _can_hold_out(dictionary, count, seed):
    try:
        hold_out(dictionary, count, seed)
    except ConfigError as error:
        assert "belong to entries with another definition" in str(error)  # noqa: PT017
        return False
    return True


def test_ranks_are_over_all_entries(bert):
    encoder = load_encoder(bert, "own")
    texts = ["the writer", "a dog sleeps", "one", "a long wing of the store"]
    windows = make_windows(TextTokenizer(bert), texts, None, 0)
    vectors = np.random.default_rng(0).normal(size=(40, 16)).astype(np.float32)
    answers = [(3,), (4, 9), (0,), (39, 1)]
    found = ranks(encoder, windows, answers, EntrySpace(vectors), "mean", CPU)
    for i, right in enumerate(answers):
        ids, mask = windows.batch(np.array([i]), CPU.device)
        with torch.no_grad():
            scores = vectors @ encoder.eval()(ids, mask, "mean")[0].numpy()
        assert found[i] == min(int((scores > scores[entry]).sum()) for entry in right) + 1


def test_accuracy():
    found = accuracy(np.array([1, 2, 10, 11, 100, 101, 1, 1000]))
    assert (found.top1, found.top10, found.top100, found.definitions) == (25.0, 50.0, 75.0, 8)
    assert found.mrr == pytest.approx(np.mean([1, 1 / 2, 1 / 10, 1 / 11, 1 / 100, 1 / 101, 1, 1 / 1000]))
