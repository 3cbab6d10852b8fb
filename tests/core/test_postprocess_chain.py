"""Chains of post-processors, separate fits for documents and queries, and saved state."""

import numpy as np
import pytest

from ragembed.errors import ConfigError, ModelError, NotFittedError, RagembedError
from ragembed.postprocess import Chain, TwoSidedChain
from ragembed.postprocess.protocol import ROUNDING
from ragembed.postprocess.steps import Whiten

SPECS = (
    *("center", "zscore", "quantile-u", "quantile-n", "robust", "whiten", "whiten:2", "abtt", "abtt:1", "common"),
    *("common-weighted:2", "normalize"),
)
RNG = np.random.default_rng(0)
X = (RNG.standard_normal((40, 5)) @ RNG.standard_normal((5, 5)) + 1).astype(np.float32)
QUERIES = (RNG.standard_normal((30, 5)) * 3 - 2).astype(np.float32)


def test_each_step_is_fitted_on_the_output_of_the_previous_one():
    chain = Chain(["normalize", "center"]).fit(X)
    np.testing.assert_allclose(chain.transform(X).mean(axis=0), 0, atol=1e-7)


@pytest.mark.parametrize(
    ("specs", "dim"),
    [([], None), (["normalize"], None), (["zscore"], 5), (["whiten:2"], 2), (["whiten:3", "abtt:1", "normalize"], 3)],
)
def test_output_dimension(specs, dim):
    assert Chain(specs).dim is None
    chain = Chain(specs).fit(X)
    assert chain.dim == dim
    assert chain.transform(X).shape[1] == (dim or 5)


@pytest.mark.parametrize("spec", [spec for spec in SPECS if not spec.startswith("whiten")])
def test_query_chain_has_its_own_fit(spec):
    chain = TwoSidedChain.fit([spec], X, QUERIES)
    np.testing.assert_array_equal(chain.queries.transform(X), Chain([spec]).fit(QUERIES).transform(X))


# Whitening rotates documents and queries alike


def test_queries_are_whitened_along_document_directions():
    chain = TwoSidedChain.fit(["whiten:3"], X, QUERIES)
    state = chain.state()
    np.testing.assert_array_equal(state["queries.0.directions"], state["documents.0.directions"])
    along = (QUERIES - QUERIES.mean(axis=0)) @ state["documents.0.directions"].T
    expected = along / along.std(axis=0, ddof=1)
    np.testing.assert_allclose(chain.queries.transform(QUERIES), expected, atol=1e-4)


def test_constant_queries_use_the_variance_of_documents():
    documents = np.array([[2, 0], [-2, 0], [0, 1], [0, -1]], dtype=np.float32)
    queries = np.array([[5, 3], [5, 3], [5, 4], [5, 2]], dtype=np.float32)
    kernel = Whiten().fit_queries(queries, Whiten().fit(documents))
    np.testing.assert_allclose(kernel.scale_, [np.sqrt(8 / 3), np.sqrt(2 / 3)])
    np.testing.assert_allclose(kernel.mean_, [5, 3])


@pytest.mark.parametrize("queries", [QUERIES[:1], np.repeat(QUERIES[:1], 3, axis=0)])
def test_single_query_stays_finite(queries):
    chain = TwoSidedChain.fit(["whiten"], X, queries)
    state = chain.state()
    np.testing.assert_array_equal(state["queries.0.scale"], state["documents.0.scale"])
    np.testing.assert_allclose(chain.queries.transform(queries), 0, atol=1e-5)


def test_rounding_along_a_direction_does_not_count_as_variance():
    queries = QUERIES.copy()
    queries[:, 0] = 0.1
    queries[::2, 0] = np.nextafter(np.float32(0.1), np.float32(1))
    documents = np.diag([9, 5, 4, 3, 2]).astype(np.float32)
    documents = np.vstack([documents, -documents])
    kernel = Whiten().fit_queries(queries, documents=Whiten().fit(documents))
    assert kernel.scale_.min() > ROUNDING
    assert np.abs(kernel.transform(queries)).max() < 10


@pytest.mark.parametrize("specs", [["whiten:2"], ["zscore", "whiten", "normalize"], ["center"]])
def test_different_dimensions_are_rejected(specs):
    with pytest.raises(ConfigError, match="expected the same dimension"):
        TwoSidedChain.fit(specs, X, QUERIES[:, :4])


def test_whitening_queries_needs_documents_of_the_same_dimension():
    with pytest.raises(ConfigError, match="4 dimensions: expected 5"):
        Whiten().fit_queries(QUERIES[:, :4], Whiten().fit(X))
    with pytest.raises(NotFittedError, match="Whiten is not fitted"):
        Whiten().fit_queries(QUERIES, Whiten())


# State


@pytest.mark.parametrize("specs", [[], *([spec] for spec in SPECS), ["zscore", "whiten:3", "quantile-u", "normalize"]])
@pytest.mark.parametrize("two", [True, False])
def test_state_round_trip(specs, two):
    chain = TwoSidedChain.fit(specs, X, QUERIES if two else None)
    state = {name: array.copy() for name, array in chain.state().items()}
    assert {array.dtype.kind for array in state.values()} <= {"f"}
    back = TwoSidedChain.restore(specs, state, two)
    assert (back.queries is back.documents) is not two
    assert back.documents.dim == chain.documents.dim
    for side in ("documents", "queries"):
        for rows in (X, QUERIES, X[:1]):
            np.testing.assert_array_equal(getattr(back, side).transform(rows), getattr(chain, side).transform(rows))


@pytest.mark.parametrize(
    ("specs", "name", "array", "message"),
    [
        (["center"], "0.mean", np.zeros(5), "'mean' of Center is float64.*expected float32"),
        (["center"], "0.mean", np.zeros(5, dtype=np.int32), "'mean' of Center is int32"),
        (["center"], "0.mean", np.zeros((5, 1), dtype=np.float32), r"shape \(5, 1\): expected float32 with 1 axes"),
        (["center"], "0.mean", np.zeros(0, dtype=np.float32), "none of them empty"),
        (["center"], "0.scale", np.zeros(5, dtype=np.float32), "unknown array 'scale'"),
        (["center"], "1.mean", np.zeros(5, dtype=np.float32), "unknown array '1.mean': the chain has 1"),
        (["zscore"], "0.scale", np.ones(4, dtype=np.float32), r"'scale' of ZScore has shape \(4,\).*expected 5"),
        (["whiten:2"], "0.scale", np.ones(3), r"'scale' of Whiten has shape \(3,\)"),
        (["abtt:1"], "0.directions", np.ones((1, 4)), r"'directions' of AllButTheTop has shape \(1, 4\)"),
        (["quantile-u"], "0.quantiles", np.ones(5), "expected float64 with 2 axes"),
        (
            ["whiten:2", "center"],
            "1.mean",
            np.ones(5, dtype=np.float32),
            "one returns 2 dimensions, but the next expects 5",
        ),
    ],
)
def test_damaged_array_is_reported(specs, name, array, message):
    state = {**Chain(specs).fit(X).state(), name: array}
    with pytest.raises(ModelError, match=message):
        Chain(specs).restore(state)


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec != "normalize"])
def test_every_array_is_required(spec):
    state = Chain([spec]).fit(X).state()
    for name in state:
        with pytest.raises(RagembedError, match=name.removeprefix("0.")):
            Chain([spec]).restore({other: array for other, array in state.items() if other != name})


def test_saved_chains_with_different_dimensions_are_rejected():
    state = TwoSidedChain.fit(["whiten:2"], X, QUERIES).state()
    other = TwoSidedChain.fit(["whiten:3"], X, QUERIES).state()
    mixed = {name: (other if name.startswith("queries") else state)[name] for name in state}
    with pytest.raises(ModelError, match="query chain returns 3 dimensions and the document chain 2"):
        TwoSidedChain.restore(["whiten:2"], mixed, two=True)
