"""The layout and the clusters of vectors."""

from __future__ import annotations

import numpy as np
import pytest

from ragembed.indexes.faiss_index.vectors import nearest
from ragembed.postprocess import unit_rows
from ragembed.reports import map as map_module
from ragembed.reports.map import SCALE, find_clusters, labels, make_map, place_beside


def blobs(count: int, kinds: int = 5, dim: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors around a few centres, and the number of each one's centre."""
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(kinds, dim))
    kind = np.arange(count) % kinds
    return unit_rows((centres[kind] + rng.normal(size=(count, dim))).astype(np.float32)), kind


def mapped(vectors):
    return make_map(len(vectors), lambda numbers: vectors[numbers], lambda _: None)


@pytest.mark.parametrize("laid_out", [20_000, 120])
def test_neighbours_stay_neighbours(monkeypatch, laid_out):
    monkeypatch.setattr(map_module, "LAID_OUT", laid_out)
    vectors, kind = blobs(400)
    found = mapped(vectors)
    assert found.kept > 0.3  # by chance 0.025
    assert len(found.laid_out) == min(laid_out, 400)
    places = found.places.astype(np.float64)
    near, _ = nearest_places(places)
    assert (kind[near] == kind).mean() > 0.95
    for cluster in np.unique(found.cluster):
        assert len(np.unique(kind[found.cluster == cluster])) == 1
    assert (places.min(), places.max()) == (0, SCALE)
    assert np.array_equal(mapped(vectors).places, found.places)


def nearest_places(places):
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    return distances.argmin(axis=1), distances


@pytest.mark.parametrize("count", [1, 2, 3, 15, 16, 17, 40])
@pytest.mark.parametrize("equal", [False, True])
def test_few_or_equal_vectors_have_a_map(count, equal):
    vectors = np.ones((count, 4), np.float32) / 2 if equal else blobs(count)[0]
    found = mapped(vectors)
    assert found.places.shape == (count, 2)
    assert (found.kept is None) == (count < 12)
    assert len(found.clusters.centres) == found.cluster.max() + 1


def test_nearest_neighbours_are_exact_and_without_the_vector_itself():
    vectors, _ = blobs(50)
    found, cosines = nearest(vectors, vectors, 3, leave_out=np.arange(50))
    products = vectors @ vectors.T
    np.fill_diagonal(products, -1)
    assert np.array_equal(found, np.argsort(-products, axis=1)[:, :3])
    assert np.allclose(cosines, np.sort(products, axis=1)[:, :-4:-1])


def test_a_point_is_placed_beside_its_nearest():
    places = np.array([[100.0, 100.0], [200.0, 100.0], [60_000.0, 60_000.0]])
    assert place_beside(places, np.array([0.5, 0.5, 0.5])).tolist() == [150, 100]


def test_clusters_are_ordered_by_size_and_nested():
    vectors, kind = blobs(300)
    clusters, number = find_clusters(vectors[kind < 4][:200])
    assert np.all(np.diff(clusters.group) >= 0)
    sizes = np.bincount(clusters.group[number])
    assert np.all(np.diff(sizes) <= 0)
    assert np.allclose(np.linalg.norm(clusters.centres, axis=1), 1, atol=1e-5)


def test_labels_are_the_words_of_one_class_in_their_usual_form():
    texts = [
        "The locks of a store 12",
        "A lock, locks and a store",
        "The wing and the wave",
        "A wing of the wave x",
    ] * 3
    [found] = labels(texts, [np.array([0, 0, 1, 1] * 3)], "english")
    assert found[0][:2] == ["locks", "store"]
    assert found[1][:2] == ["wave", "wing"]
    assert not {"the", "a", "12", "x"} & {*found[0], *found[1]}
    [chinese] = labels(["数据库的锁", "数据库的读者", "猫和狗", "猫和鱼"], [np.array([0, 0, 1, 1])], "none")
    german = [
        "Der Motor und das Getriebe",
        "Ein Motor mit Getriebe",
        "Das Konto bei der Bank",
        "Ein Konto und die Bank",
    ]
    [found] = labels(german * 3, [np.array([0, 0, 1, 1] * 3)], "none")
    assert [set(words) for words in found] == [{"motor", "getriebe"}, {"konto", "bank"}]
    notes = [f"tags: [note, {name}]\ndate: {name}\n\nThe {name} stands." for name in ("boat", "car")] * 6
    [[boat, car]] = labels(notes, [np.arange(12) % 2], "english")
    assert boat[0] == "boat"
    assert car[0] == "car"
    assert "note" not in {*boat, *car}
    assert "锁" not in chinese[0]
    assert {len(word) for words in chinese for word in words} == {2}
    assert "猫和" in chinese[1]


def test_labels_have_no_function_words_of_any_language_of_the_texts():
    texts = ["Der Motor ist nicht laut", "Le moteur est dans le garage", "The engine is under the hood"] * 4
    classes = [np.arange(12) % 3]
    [found] = labels(texts, classes, "english", ["german", "french"])
    assert [set(words) for words in found] == [{"motor", "laut"}, {"moteur", "garage"}, {"engine", "hood"}]


def test_labels_are_phrases_without_addresses_names_and_parts_of_identifiers():
    about = {
        0: "Ann Miller wrote at https://example.org/locks: the boundary layer, boundary_layer and boundaryLayer.",
        1: "Ask Bob Smith (bob@example.org). Soup stock. Bones. Soup stock and time.",
    }
    texts = [about[number % 2] for number in range(60)]
    [[wing, soup]] = labels(texts, [np.arange(60) % 2], "english")
    assert wing[0] == "boundary layer"
    assert soup[0] == "soup stock"
    words = {word for label in (*wing, *soup) for word in label.split()}
    assert words.isdisjoint({"ann", "miller", "bob", "smith", "https", "example", "org", "locks"})
