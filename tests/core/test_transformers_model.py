"""Batches that exceed the memory of a device are split; a single window that exceeds it is an error."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ragembed.errors import GpuError
from ragembed.models.transformers_model import TransformersModel, _memory_budget

LAYERS = (-1, 1, 2)


@pytest.fixture(scope="module")
def whole(tiny_model):
    return TransformersModel(tiny_model, "float32", "cpu")


@pytest.fixture
def short(tiny_model):
    """Return a model on a device with memory for a number of windows, and the list of attempted batch sizes."""
    model = TransformersModel(tiny_model, "float32", "cpu")
    inside = model._model.forward
    tried = []

    def with_room(windows):
        def forward(input_ids, **options):
            tried.append(len(input_ids))
            if len(input_ids) > windows:
                raise torch.cuda.OutOfMemoryError("tried to allocate 2 GiB")
            return inside(input_ids=input_ids, **options)

        model._model.forward = forward
        return model, tried

    return with_room


def windows(number):
    ids = np.random.default_rng(0).integers(5, 100, size=(number, 9))
    return ids, np.random.default_rng(1).integers(1, 10, size=number)


def assert_same(found, expected, lengths):
    for mine, other in zip(found, expected, strict=True):
        assert mine.shape == other.shape
        assert mine.dtype == np.float32
        for row, length in enumerate(lengths):
            np.testing.assert_allclose(mine[row, :length], other[row, :length], atol=1e-5)


@pytest.mark.parametrize(
    ("room", "number", "sizes"),
    [(8, 8, [8]), (7, 8, [8, 4, 4]), (3, 8, [8, 4, 2, 2, 2, 2]), (1, 3, [3, 1, 1, 1]), (2, 5, [5, 2, 2, 1])],
)
def test_batch_is_halved_until_it_fits(short, whole, room, number, sizes):
    ids, lengths = windows(number)
    model, tried = short(room)
    assert_same(model.states(ids, lengths, LAYERS), whole.states(ids, lengths, LAYERS), lengths)
    assert tried == sizes


def test_failed_batch_size_is_not_tried_again(short):
    model, tried = short(3)
    for _ in range(2):
        model.states(*windows(8), LAYERS)
    assert tried == [8, 4, 2, 2, 2, 2, 2, 2, 2, 2]


def test_window_that_does_not_fit(short):
    model, tried = short(0)
    expected = (
        "1 window of 9 tokens, from a batch of 4, does not fit in the free memory of cpu: free some memory, "
        "set max_tokens "
    )
    with pytest.raises(GpuError, match=expected) as raised:
        model.states(*windows(4), LAYERS)
    assert isinstance(raised.value.__cause__, torch.cuda.OutOfMemoryError)
    assert tried == [4, 2, 1]


def test_model_that_does_not_fit(tiny_model, monkeypatch):
    def no_room(self, *args, **options):
        raise torch.cuda.OutOfMemoryError("tried to allocate 2 GiB")

    monkeypatch.setattr(torch.nn.Module, "to", no_room)
    with pytest.raises(
        GpuError, match=r"does not fit in the free memory of cpu: free some memory, or choose another device"
    ):
        TransformersModel(tiny_model, "float32", "cpu")


@given(number=st.integers(1, 12), share=st.floats(0, 2))
def test_batch_is_split_to_the_available_memory(whole, number, share):
    ids, lengths = windows(number)
    expected = whole.states(ids, lengths, LAYERS)
    model, tried = TransformersModel.__new__(TransformersModel), []
    model.__dict__ = dict(whole.__dict__)
    model._budget = int(share * number * model._row_bytes(ids.shape[1], LAYERS))
    compute = model._compute
    model._compute = lambda ids, *args: tried.append(len(ids)) or compute(ids, *args)
    assert_same(model.states(ids, lengths, LAYERS), expected, lengths)
    assert sum(tried) == number
    assert max(tried) <= max(1, share * number)


def test_memory_budget_is_most_of_the_free_gpu_memory(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (device.index * 1000, 10_000))
    assert _memory_budget(torch.device("cuda:3")) == 2400
    assert _memory_budget(torch.device("cpu")) is None
