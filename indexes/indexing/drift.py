"""Measure drift: whether the fit of a store still suits its texts.

The store is not changed. The refit that it is compared with exists only in memory, and no text is encoded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ragembed.embedder import Embedder
from ragembed.errors import RankError, StoreError
from ragembed.extractors.weighting import TokenCounter
from ragembed.indexes.collection import Collection
from ragembed.indexes.indexing import fitting
from ragembed.indexes.search.merged_snapshot import MergedSnapshot
from ragembed.indexes.search.snapshot import Snapshot, StoreSnapshot
from ragembed.indexes.storage import catalog, compaction
from ragembed.indexes.store import Store
from ragembed.models.token_ids import TokenIds
from ragembed.postprocess import Chain, unit_rows
from ragembed.reservoir import ItemReservoir
from ragembed.types import Doubles, Floats, Integers

Verdict = Literal["keep", "refit", "rebuild"]

REFIT_BELOW = 0.97
"""A refit pays off if the overlap@10 is below this share of the overlap that chance explains."""

REBUILD_ABOVE = 0.08
"""The raw vectors are out of date if token weights fitted now would move more than this share of a text's weight."""

UNSEEN_ABOVE = 0.1
"""The static vectors of ``avg`` are out of date if more than this share of tokens has no vector in the table."""

SAMPLE = 10_000
"""Maximum number of texts whose tokens are counted, and of vectors that are compared; larger stores are sampled."""

QUERIES, NEAREST, PARTS, NEW_WORDS = 256, 10, 9, 10
"""Number of vectors to search with, of results to compare, of random parts for chance, and of tokens to list."""


@dataclass(frozen=True, slots=True)
class DriftReport:
    """The drift of a store since its last fit, and what to do about it. All shares are from 0 to 1.

    Parameters
    ----------
    verdict : {"keep", "refit", "rebuild"}
        ``"keep"`` if the fit is up to date. ``"refit"`` if the post-processors are out of date. ``"rebuild"`` if the
        token weights or static vectors are, because the raw vectors depend on them.
    reasons : tuple of str
        The reasons for the verdict.
    notes : tuple of str
        The measurements that were not possible, and why.
    vectors : int
        Number of vectors that chunks use.
    added : int or None
        Number of them that were added since the fit; None if the embedder was fitted before the store was made.
    unseen : float or None
        Share of the distinct tokens of each text that occur in no text of the fit; None if tokens are not known.
    expected : float or None
        The share to expect of more texts of the same kind: that of the tokens in exactly one text of the fit.
    new_words : tuple of str
        The tokens that occur in no text of the fit and in most texts now.
    weight_shift : float or None
        Mean share of a text's weight that token weights fitted now would move to other tokens of the text; None if the
        weights are not fitted on the store, or the store has too few texts.
    overlap : float or None
        Share of the ten vectors nearest to a vector that stay the same after a refit of the post-processors; None if
        nothing can be fitted.
    chance : float or None
        The overlap to expect if the texts are of the same kind: the lowest with fits on random parts of the vectors,
        as large as the share of the texts that the fit and the store have in common.

    Examples
    --------
    >>> from ragembed.indexes import Store, measure_drift
    >>> with Store.open(".ragembed") as store:  # doctest: +SKIP
    ...     report = measure_drift(store)
    >>> report.verdict, report.reasons  # doctest: +SKIP
    ('keep', ())
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    vectors: int
    added: int | None
    unseen: float | None = None
    expected: float | None = None
    new_words: tuple[str, ...] = ()
    weight_shift: float | None = None
    overlap: float | None = None
    chance: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values.

        Returns
        -------
        dict
            The fields of the report.
        """
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def lines(self) -> list[tuple[str, str]]:
        """Return the name and the value of each measure, to print them.

        Returns
        -------
        list of tuple of str
            The measures that were possible.
        """
        lines = [("vectors", f"{self.vectors:,}")]
        if self.added is not None:
            lines.append(("added", f"{self.added:,} since the fit ({self.added / max(self.vectors, 1):.1%})"))
        if self.unseen is not None and self.expected is not None:
            lines.append(
                ("unseen tokens", f"{self.unseen:.1%} ({self.expected:.1%} expected of more texts of the same kind)")
            )
        if self.new_words:
            lines.append(("new words", ", ".join(self.new_words)))
        if self.weight_shift is not None:
            lines.append(
                ("token weights", f"a new fit would move {self.weight_shift:.1%} of a text's weight to other tokens")
            )
        if self.overlap is not None:
            lines.append(("overlap@10", f"{self.overlap:.3f} with a refit ({self.chance:.3f} expected by chance)"))
        return lines

    def _repr_html_(self) -> str:
        from ragembed.html_elements import notebook_table

        return notebook_table("; ".join([f"Drift: {self.verdict}", *self.reasons]), (), self.lines())


def measure_drift(opened: Store | Collection) -> DriftReport:
    """Measure the drift of a store since its last fit, and whether to fit it again.

    The stores of a collection are measured as one, against the fit that they have in common. Nothing is changed, and
    no text is encoded.

    Parameters
    ----------
    opened : Store or Collection
        An open store, or a collection of stores with the same embedder.

    Returns
    -------
    DriftReport
        The measurements and the verdict.

    Raises
    ------
    StoreError
        If the vectors do not come from ragembed.
    ConfigError
        If the stores of the collection have different embedders.

    Examples
    --------
    >>> from ragembed.indexes import Store, measure_drift
    >>> with Store.open(".ragembed") as store:  # doctest: +SKIP
    ...     measure_drift(store).verdict
    'keep'
    """
    if isinstance(opened, Store):
        path = opened.path
        return opened._reader.read(lambda snapshot: _measured([(path, snapshot)]))

    def answer(snapshot: Snapshot) -> DriftReport:
        members = snapshot.members if isinstance(snapshot, MergedSnapshot) else ()
        return _measured([(opened.paths[name], each) for name, each in members])

    return opened._read(answer, "dense")


def _measured(stores: Sequence[tuple[Path, StoreSnapshot]]) -> DriftReport:
    embedder, connections = stores[0][1].embedder(), [snapshot.connection for _, snapshot in stores]
    if not isinstance(embedder, Embedder):
        raise StoreError(f"cannot measure drift of {stores[0][0]}: its vectors were not made by ragembed")
    rows = [catalog.live_rows(each) for each in connections]
    ends = [catalog.meta(each, catalog.FITTED_ROW) for each in connections]
    vectors = sum(len(each) for each in rows)
    added = None if None in ends else sum(int((each > end).sum()) for each, end in zip(rows, ends, strict=True))
    notes = [f"measured on a random sample of {SAMPLE:,} chunks"] if vectors > SAMPLE else []
    tokens = _tokens(embedder, chain.from_iterable(map(catalog.embedded_texts, connections)), notes)
    wanted = tuple(catalog.wanted_chain(connections[0]).get("postprocess", embedder.config.postprocess))
    overlaps: dict[str, float] = {}
    if (obstacle := _obstacle(embedder, wanted, vectors)) is not None:
        notes.append(obstacle)
    else:
        blocks = (
            block
            for path, each in zip((path for path, _ in stores), connections, strict=True)
            for block in compaction.live_raw(path, each, catalog.segments(each))
        )
        raw = fitting.sample_raw(blocks, embedder.config.seed)
        before = embedder.fitted_on.documents if embedder.fitted_on else 0
        in_common = vectors if added is None else vectors - added
        try:
            overlaps = _overlaps(embedder, raw, in_common / max(vectors, before))
        except RankError as error:
            notes.append(f"the post-processors cannot be fitted: {error}")
    static = embedder.config.fits_static and embedder.config.weighting_corpus is None
    verdict, reasons = judge(
        overlaps.get("overlap"),
        overlaps.get("chance"),
        tokens.get("weight_shift"),
        tokens.get("unseen") if static else None,
    )
    return DriftReport(verdict, reasons, tuple(notes), vectors, added, **tokens, **overlaps)


def _tokens(embedder: Embedder, texts: Iterable[str], notes: list[str]) -> dict[str, Any]:
    """Return the fields of the report about the tokens of ``texts``."""
    config = embedder.config
    if embedder._is_external:
        notes.append(f"words are not compared: {config.model} does not show its tokens")
        return {}
    sample = ItemReservoir[str](SAMPLE, config.seed)
    deque(sample.watch(texts), maxlen=0)
    if not sample.items:
        return {}
    if config.weighting_corpus is not None:
        notes.append(f"tokens are compared with {config.weighting_corpus}, the corpus of the token weights")
    tokenizer, weights = embedder.tokenizer, embedder.extractor.weights
    special = [*tokenizer.prefix, *tokenizer.suffix]
    ids = list(tokenizer.ids(sample.items))
    counter = TokenCounter(tokenizer.vocabulary_size, special)
    counter.add(TokenIds.of(ids))
    now, before = counter.statistics(), weights.table
    after, shift = weights.table_for(now), None
    if config.fits_weights and sample.seen >= fitting.MIN_FIT and before is not None and after is not None:
        shift = weight_shift(ids, before, after, weights.share)
    unseen, expected, new = unseen_tokens(weights.require_fitted().document_frequency, now.document_frequency, special)
    words = tuple(tokenizer.vocabulary()[each] for each in new)
    return {"unseen": unseen, "expected": expected, "new_words": words, "weight_shift": shift}


def _obstacle(embedder: Embedder, wanted: Sequence[str], vectors: int) -> str | None:
    """Return why the effect of a refit with the post-processors ``wanted`` cannot be measured, or None."""
    if not fitting.fits_on_store(embedder, wanted):
        return "no post-processor is fitted on the store, so a refit would change nothing"
    if vectors < (least := fitting.least_fit(wanted)):
        return f"fitting {', '.join(wanted)} needs {least:,} chunks or more, and the store has {vectors:,}"
    if tuple(wanted) != embedder.config.postprocess:
        return f"the post-processors {', '.join(wanted)} are not fitted yet: run 'ragembed index'"
    return None


def _overlaps(embedder: Embedder, raw: Floats, share: float) -> dict[str, float]:
    """Return the overlap of a refit with the fit, and with fits on random parts of a ``share`` of the vectors."""
    rng, steps = np.random.default_rng(embedder.config.seed), embedder.config.postprocess
    size = min(max(round(share * len(raw)), fitting.least_fit(steps)), len(raw))
    refitted, drawn = Chain(steps).fit(raw), raw[rng.permutation(len(raw))[:SAMPLE]]
    now = nearest(refitted.transform(drawn))
    chance = 1.0
    for _ in range(PARTS if size < len(raw) else 0):
        of_part = Chain(steps).fit(raw[rng.choice(len(raw), size, replace=False)])
        chance = min(chance, overlap(nearest(of_part.transform(drawn)), now))
    return {"overlap": overlap(nearest(embedder.chain.documents.transform(drawn)), now), "chance": chance}


# Measures


def unseen_tokens(fitted: Integers, now: Integers, special: Iterable[int]) -> tuple[float, float, list[int]]:
    """Compare two document frequencies by token id, without the ids in ``special``.

    Return the share of (text, distinct token) pairs whose token is in no text of the fit; the share to expect, which is
    the number of tokens in exactly one text of the fit, divided by the pairs of the fit (Good 1953); and the ten most
    frequent of the tokens that are in no text of the fit.
    """
    counted = np.ones(len(now), dtype=bool)
    counted[list(special)] = False
    now, fitted = now * counted, fitted * counted
    new = np.where(fitted == 0, now, 0)
    order = [int(each) for each in np.argsort(-new, kind="stable")[:NEW_WORDS] if new[each]]
    return int(new.sum()) / max(int(now.sum()), 1), int((fitted == 1).sum()) / max(int(fitted.sum()), 1), order


def weight_shift(texts: Iterable[Integers], fitted: Floats, now: Floats, share: float) -> float:
    """Return the mean share of a text's weight that the weights ``now`` move to other tokens of the text.

    This is the total variation distance of the two distributions of weights over the tokens of a text. ``texts`` are
    arrays of token ids, shape ``(n,)``. ``fitted`` and ``now`` are the weights by id, float32, shape ``(vocabulary,)``.
    ``share`` is the part of a text's weight that they determine; the rest is uniform.
    """
    shifts = [0.5 * share * float(np.abs(_scaled(fitted[ids]) - _scaled(now[ids])).sum()) for ids in texts if len(ids)]
    return sum(shifts) / len(shifts) if shifts else 0.0


def nearest(vectors: Floats) -> NDArray[np.int64]:
    """Return the positions of the ten vectors with the largest cosines with each of the first 256, unordered.

    A vector is not near itself. ``vectors`` are float32, shape ``(n, d)``; the result is int64, shape ``(q, k)``.
    """
    units = unit_rows(vectors)
    scores = units[:QUERIES] @ units.T
    np.fill_diagonal(scores, -np.inf)
    found: NDArray[np.int64] = np.argsort(-scores, axis=1, kind="stable")[:, : min(NEAREST, len(vectors) - 1)]
    return found


def overlap(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """Return the mean share of results that two searches have in common, ids without duplicates in a row."""
    common = [len(np.intersect1d(a, b, assume_unique=True)) for a, b in zip(one, other, strict=True)]
    return sum(common) / one.size


def judge(
    overlap: float | None, chance: float | None, weight_shift: float | None, unfitted: float | None
) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict of :class:`DriftReport` and its reasons. None means that a value was not measured."""
    rebuild: list[str] = []
    if weight_shift is not None and weight_shift > REBUILD_ABOVE:
        rebuild.append(
            f"token weights fitted now would move {weight_shift:.1%} of a text's weight to other tokens of it "
            f"(more than {REBUILD_ABOVE:.0%})"
        )
    if unfitted is not None and unfitted > UNSEEN_ABOVE:
        rebuild.append(
            f"{unfitted:.0%} of the tokens have no static vector fitted on these texts (more than {UNSEEN_ABOVE:.0%})"
        )
    if rebuild:
        return "rebuild", tuple(rebuild)
    if overlap is not None and chance is not None and overlap < REFIT_BELOW * chance:
        least = f"{REFIT_BELOW:g} of the {chance:.2f} that chance explains"
        return "refit", (f"a refit would change the results: overlap@10 {overlap:.2f} (less than {least})",)
    return "keep", ()


def _scaled(weights: Floats) -> Doubles:
    """Scale the weights of a text's tokens to sum 1; if all are 0, return uniform weights."""
    wide = weights.astype(np.float64)
    total = float(wide.sum())
    return wide / total if total > 0 else np.full(len(wide), 1.0 / len(wide))
