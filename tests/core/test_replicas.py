"""Replicas: batches are spread over devices and taken in order, and no thread keeps running."""

import threading
from dataclasses import dataclass, field

import numpy as np
import pytest

from ragembed.extractors.forward import THREAD_NAME, Batch, Replicas

LAYERS = (2,)


def batches(number):
    """Return batches; the n-th contains only the token n."""
    for i in range(number):
        one = np.array([i])
        yield Batch(one, one[None], one[None].astype(np.int8), np.array([1]), completed=1)


@dataclass
class Doubling:
    """A model whose hidden state is twice the token; it can wait, and fail at a given token."""

    fails_at: int = -1
    waits_for: threading.Event | None = None
    computed: list[int] = field(default_factory=list)

    def states(self, ids, lengths, layers):
        if self.waits_for is not None:
            assert self.waits_for.wait(30)
        self.computed.append(int(ids[0, 0]))
        if self.computed[-1] == self.fails_at:
            raise ValueError("no such token")
        assert layers == LAYERS
        return [ids.astype(np.float32) * 2]


def replicas(models):
    return Replicas([lambda model=model: model for model in models])


def run(models, number, take=lambda batch, states: None):
    taken = []

    def keep(batch, states):
        take(batch, states)
        taken.append((int(batch.ids[0, 0]), float(states[0][0, 0])))

    replicas(models).run(batches(number), LAYERS, keep)
    return taken


def running():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME)]


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
@pytest.mark.parametrize("number", [0, 1, 2, 5, 40])
def test_every_batch_is_taken_once_and_in_order(devices, number):
    models = [Doubling() for _ in range(devices)]
    assert run(models, number) == [(i, 2.0 * i) for i in range(number)]
    assert sorted(i for model in models for i in model.computed) == list(range(number))
    assert running() == []


def test_slow_device_keeps_the_order():
    others_done = threading.Event()

    class Quick(Doubling):
        def states(self, ids, lengths, layers):
            found = super().states(ids, lengths, layers)
            if len(self.computed) == 3:
                others_done.set()
            return found

    slow, quick = Doubling(waits_for=others_done), Quick()
    assert run([slow, quick], 4) == [(i, 2.0 * i) for i in range(4)]
    assert len(quick.computed) == 3


@pytest.mark.parametrize("devices", [1, 2, 5])
def test_few_batches_are_in_progress(devices):
    begun = []
    most = []

    def make():
        for i, batch in enumerate(batches(50)):
            begun.append(i)
            yield batch

    taken = []

    def take(batch, states):
        most.append(len(begun) - len(taken))
        taken.append(batch)

    replicas([Doubling() for _ in range(devices)]).run(make(), LAYERS, take)
    assert len(taken) == 50
    assert max(most) <= 2 * devices + 1


def test_model_is_loaded_once_and_only_on_used_devices():
    loaded = []
    spread = Replicas([lambda i=i: loaded.append(i) or Doubling() for i in range(4)])
    for number, expected in ((0, []), (1, [0]), (1, [0]), (9, [0, 0, 1, 2, 3]), (2, [0, 0, 1, 2, 3])):
        spread.run(batches(number), LAYERS, lambda batch, states: None)
        assert loaded == expected


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_failure_in_the_model_ends_the_run(devices):
    models = [Doubling(fails_at=6) for _ in range(devices)]
    taken = []
    with pytest.raises(ValueError, match="no such token"):
        replicas(models).run(batches(40), LAYERS, lambda batch, states: taken.append(int(batch.ids[0, 0])))
    assert taken == list(range(6))
    assert sum(len(model.computed) for model in models) <= 6 + 2 * devices
    assert running() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_interruption_ends_the_run(devices, error):
    models = [Doubling() for _ in range(devices)]

    def take(batch, states):
        if int(batch.ids[0, 0]) == 5:
            raise error

    with pytest.raises(error):
        run(models, 40, take)
    assert sum(len(model.computed) for model in models) <= 6 + 2 * devices
    assert running() == []

    def make():
        yield from batches(7)
        raise error

    with pytest.raises(error):
        replicas(models).run(make(), LAYERS, lambda batch, states: None)
    assert running() == []
