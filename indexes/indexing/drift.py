"""Measure drift: whether the fit of a store still suits its texts. The store is not changed, and no text is encoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ragembed.embedder import Embedder
from ragembed.errors import StoreError
from ragembed.extractors.weighting import TokenCounter
from ragembed.indexes.collection import Collection
from ragembed.indexes.indexing import fitting
from ragembed.indexes.search.merged_snapshot import MergedSnapshot
from ragembed.indexes.search.snapshot import Snapshot, StoreSnapshot
from ragembed.indexes.storage import catalog, compaction
from ragembed.indexes.store import Store
from ragembed.models.token_ids import TokenIds
from ragembed.reservoir import ItemReservoir
from ragembed.types import Doubles, Floats, Integers

Verdict = Literal["keep", "refit", "rebuild"]

REFIT_ABOVE = 0.1
"""The post-processors are out of date if the mean vector has moved by more than this many spreads, and than chance."""

REBUILD_ABOVE = 0.08
"""The raw vectors are out of date if token weights fitted now would move more than this share of a text's weight."""

UNSEEN_ABOVE = 0.1
"""The static vectors of ``avg`` are out of date if more than this share of tokens has no vector in the table."""

SAMPLE, NEW_WORDS = 10_000, 10
"""Maximum number of texts whose tokens are counted, and number of new tokens to list."""


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
    mean_shift : float or None
        How far the added vectors have moved the mean of all vectors, in spreads: the root mean square distance of the
        fit's vectors from their mean. None if nothing is left of the fit, or it was made before the store.

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
    mean_shift: float | None = None

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
        if self.mean_shift is not None:
            lines.append(("mean shift", f"{self.mean_shift:.3f} times the spread of the vectors"))
        return lines

    def _repr_html_(self) -> str:
        from ragembed.html_elements import notebook_table

        return notebook_table(
            "; ".join([f"Drift: {self.verdict}", *self.reasons]),
            (),
            [(name.capitalize(), value) for name, value in self.lines()],
        )


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
    ends = [catalog.meta(each, catalog.FITTED_ROW) for each in connections]
    rows = [catalog.live_rows(each) for each in connections]
    vectors, added, shift = sum(len(each) for each in rows), None, None
    if None not in ends:
        added = sum(int((each > end).sum()) for each, end in zip(rows, ends, strict=True))
        shift = 0.0 if added == 0 else _mean_shift(stores, ends) if added < vectors else None
    notes: list[str] = []
    tokens = _tokens(embedder, chain.from_iterable(map(catalog.embedded_texts, connections)), notes)
    wanted = tuple(catalog.wanted_chain(connections[0]).get("postprocess", embedder.config.postprocess))
    obstacle = _obstacle(embedder, wanted, vectors)
    notes += [obstacle] if obstacle else []
    verdict, reasons = judge(
        vectors,
        None if obstacle else added,
        shift,
        tokens.get("weight_shift"),
        tokens.get("unseen") if embedder.config.fits_static and embedder.config.weighting_corpus is None else None,
    )
    return DriftReport(verdict, reasons, tuple(notes), vectors, added, **tokens, mean_shift=shift)


def _mean_shift(stores: Sequence[tuple[Path, StoreSnapshot]], ends: Sequence[int]) -> float:
    """Return how far the vectors with a row above ``ends`` move the mean of all vectors; 0 if the spread is 0."""
    counts, sums, squares = [0, 0], [np.zeros(1), np.zeros(1)], 0.0
    for (path, snapshot), end in zip(stores, ends, strict=True):
        for rows, raw in compaction.live_raw(path, snapshot.connection, catalog.segments(snapshot.connection)):
            wide = raw.astype(np.float64)
            for side, part in enumerate((wide[rows <= end], wide[rows > end])):
                counts[side] += len(part)
                sums[side] = sums[side] + part.sum(axis=0)
            squares += float(np.square(wide[rows <= end]).sum())
    fitted = sums[0] / counts[0]
    spread = np.sqrt(max(squares / counts[0] - float(fitted @ fitted), 0.0))
    return float(np.linalg.norm((sums[0] + sums[1]) / sum(counts) - fitted) / spread) if spread else 0.0


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
    if sample.seen > SAMPLE:
        notes.append(f"tokens were counted in a random sample of {SAMPLE:,} of {sample.seen:,} chunks")
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
    """Return why the post-processors ``wanted`` cannot be out of date, or None."""
    if not fitting.fits_on_store(embedder, wanted):
        return "no post-processor is fitted on the store, so a refit would change nothing"
    if vectors < (least := fitting.least_fit(wanted)):
        return f"fitting {', '.join(wanted)} needs {least:,} chunks or more, and the store has {vectors:,}"
    if tuple(wanted) != embedder.config.postprocess:
        return f"the post-processors {', '.join(wanted)} are not fitted yet: run 'ragembed index'"
    return None


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


def judge(
    vectors: int, added: int | None, mean_shift: float | None, weight_shift: float | None, unfitted: float | None
) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict of :class:`DriftReport` and its reasons. None means that a value was not measured.

    By chance, the mean moves by ``sqrt(added / (vectors (vectors - added)))`` spreads; twice as much is not chance.
    """
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
    if added and added == vectors:
        return "refit", ("nothing is left of the texts of the fit",)
    if added and mean_shift is not None:
        most = max(REFIT_ABOVE, 2 * (added / (vectors * (vectors - added))) ** 0.5)
        if mean_shift > most:
            return "refit", (f"new texts moved the mean vector by {mean_shift:.2f} spreads (more than {most:.2f})",)
    return "keep", ()


def _scaled(weights: Floats) -> Doubles:
    """Scale the weights of a text's tokens to sum 1; if all are 0, return uniform weights."""
    wide = weights.astype(np.float64)
    total = float(wide.sum())
    return wide / total if total > 0 else np.full(len(wide), 1.0 / len(wide))
