"""Vectors that were made elsewhere: a text may have several, and an unused vector can be replaced."""

import numpy as np
import pytest

from ragembed.errors import ConfigError, IncompatibleStoreError
from ragembed.indexes import Store
from ragembed.postprocess import unit_rows
from tests.conftest import record

EAST, NORTH, WEST = [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]


@pytest.fixture
def store(tmp_path, make_encoder):
    return Store.create(tmp_path / "store", make_encoder({"east": EAST, "north": NORTH, "west": WEST}))


def stage(store, texts, vectors):
    with store.writer() as writer:
        writer.stage_vectors(texts, np.array(vectors, dtype=np.float32))


def add(store, texts, vectors):
    """Add chunks whose ids are their texts."""
    with store.writer() as writer:
        writer.stage_vectors(texts, np.array(vectors, dtype=np.float32))
        writer.commit(chunks=[record(text, text) for text in texts])


def assert_sound(store, **vectors):
    """Assert that the store is undamaged, for an encoder that makes these vectors."""
    store.embedder.table.update(vectors)
    assert store.verify().problems == []


def nearest(store, query):
    return [hit.id for hit in store.search(query, 9, "dense")]


def everything(store):
    """Return the visible contents of a store, and its vectors, used or not."""
    status = store.status()
    counts = [status[name] for name in ("chunks", "vectors", "unused_vectors", "segments", "generation")]
    return counts, list(store.chunks()), [nearest(store, name) for name in ("east", "north", "west")]


@pytest.mark.parametrize("vector", [EAST, [3.0, 0.0], [1.0, 1e-3]])
def test_same_vector_again_changes_nothing(store, vector):
    add(store, ["one", "two"], [EAST, NORTH])
    before = everything(store)
    stage(store, ["one", "one"], [vector, EAST])
    assert everything(store) == before


@pytest.mark.parametrize("vector", [WEST, [0.9, 0.1], [0.0, 0.0]])
def test_different_vector_for_a_used_text_gets_its_own_key(store, vector):
    add(store, ["one", "two"], [EAST, NORTH])
    with store.writer() as writer:
        first, second, again = writer.stage_vectors(["one", "one", "one"], np.array([EAST, vector, vector], np.float32))
        writer.commit(chunks=[record("one", "one"), record("other", "one")], keys={"one": first, "other": second})
    assert first != second == again
    np.testing.assert_allclose(
        store.vectors(["one", "other"]), unit_rows(np.array([EAST, vector], np.float32)), atol=1e-3
    )
    assert_sound(store, one=EAST, two=NORTH)
    add(store, ["one"], [EAST])
    assert store.status()["vectors"] == 3


def test_unused_vector_is_replaced(store):
    stage(store, ["one"], [EAST])
    add(store, ["one", "two"], [NORTH, EAST])
    assert nearest(store, "north") == ["one", "two"]
    assert store.search("east", 9, "dense")[0].id == "two"
    np.testing.assert_allclose(store.vectors(["one"]), [NORTH], atol=1e-6)
    assert_sound(store, one=NORTH, two=EAST)


def test_deleted_text_can_return_with_another_vector(store):
    add(store, ["one", "two", "three"], [EAST, NORTH, WEST])
    store.delete(["one"])
    add(store, ["one"], [WEST])
    np.testing.assert_allclose(store.vectors(["one", "three"]), [WEST, WEST], atol=1e-6)
    assert set(nearest(store, "west")[:2]) == {"one", "three"}
    store.optimize()
    assert store.status()["unused_vectors"] == 0
    assert_sound(store, one=WEST, two=NORTH, three=WEST)


@pytest.mark.parametrize(
    ("vectors", "error", "message"),
    [
        ([[1.0, 0.0, 0.0]], IncompatibleStoreError, r"dimension 3: expected 2"),
        ([[float("nan"), 0.0]], ConfigError, "vector 0 holds a value that is not finite"),
        ([[1e9, 0.0]], ConfigError, "not finite in float16"),
    ],
)
def test_invalid_vectors_change_nothing(store, vectors, error, message):
    add(store, ["one"], [EAST])
    before = everything(store)
    with pytest.raises(error, match=message):
        stage(store, ["new"], vectors)
    assert everything(store) == before


def test_failed_commit_hides_the_given_vectors(store):
    add(store, ["one"], [EAST])
    with store.writer() as writer:
        writer.stage_vectors(["new"], np.array([NORTH], dtype=np.float32))
        with pytest.raises(ConfigError, match="cannot be stored"):
            writer.commit(chunks=[record("new", "new", metadata={"x": object()})])
    assert nearest(store, "north") == ["one"]
    add(store, ["new"], [WEST])
    assert nearest(store, "west")[0] == "new"
