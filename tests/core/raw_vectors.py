"""Settings without token weights, and raw vectors that are the same for documents and queries."""

import numpy as np

from ragembed import Embedder, EmbedderConfig

TEXTS = ["the cat sleeps and the dog runs", "supersonic air flow on a wing", "the lock of the store, a reader.", "fox"]
LONG = "the cat sleeps and the dog runs: shock wave, boundary layer. " * 12


def config(folder, **changes):
    return EmbedderConfig(**{"model": str(folder), "dtype": "float32", "weighting": "uniform", **changes})


def raw(folder, texts, corpus=TEXTS, **changes):
    """Return the raw vectors of ``texts``; check that few documents, and queries of one window, have the same."""
    embedder = Embedder(config(folder, **changes)).fit_extractor(corpus)
    documents = embedder.raw_documents(texts)
    np.testing.assert_allclose(embedder.extractor.encode(texts, "few-documents"), documents, atol=1e-4)
    short = [i for i, text in enumerate(texts) if embedder.query_note(text) is None]
    np.testing.assert_allclose(embedder.raw_queries([texts[i] for i in short]), documents[short], atol=1e-4)
    return documents
