"""Word vectors of a small corpus: B2S with several settings, its solution in closed form, and averages (avg)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from data import Setting
from processes import say
from report import table
from speed import Outcome

from ragembed import Embedder, EmbedderConfig
from ragembed.config.settings import DEFAULT_MODEL
from ragembed.corpus import Corpus
from ragembed.evaluation import evaluate
from ragembed.evaluation.tasks import Task
from ragembed.models.word_tokenizer import word_forms
from ragembed.papers import read_sts
from ragembed.papers.reproduction.data import sentences
from ragembed.papers.training import B2sRequest, B2sSettings, train_b2s
from ragembed.papers.training.b2s import VECTORS, CorpusWords, write_vectors
from ragembed.types import Floats

_STS = ("sts12", "sts13", "sts14")
_PLAIN = EmbedderConfig(model=DEFAULT_MODEL, pooling="mean", weighting="uniform", postprocess=(), query_fit="shared")
_SETTINGS = [
    B2sSettings(min_count=10, threshold=1e-3, epochs=20),
    B2sSettings(min_count=3, threshold=1e-3, epochs=20),
    B2sSettings(min_count=1, threshold=1e-3, epochs=10),
    *(B2sSettings(min_count=1, threshold=1e-3, epochs=epochs, learning_rate=0.01) for epochs in (3, 10)),
    B2sSettings(min_count=2, threshold=1e-3, epochs=5, learning_rate=0.01),
]
_COUNTS = (1, 2, 3, 10)


def word_vectors(setting: Setting) -> Outcome:
    """Measure the correlation with judged similarity for each kind of word vectors."""
    corpus = sentences(setting.data / "wikitext-2", setting.folder)
    if setting.trial:
        lines = corpus.read_text(encoding="utf-8").splitlines()[:600]
        corpus.write_text("\n".join(lines), encoding="utf-8")
    counts = _COUNTS[: setting.choose(len(_COUNTS), 2)]
    rows = [
        *_trained(setting, corpus, _SETTINGS[-1:] if setting.trial else _SETTINGS),
        *_closed(setting, corpus, counts),
        *_averages(setting, corpus, counts),
    ]
    header = ("vectors", "words", "uniform weights", "idf", "words without a vector", "sentences with such a word")
    about = (
        f"Mean Spearman correlation on {', '.join(_STS)}, with the post-processor `center`. The corpus is Wikitext-2 "
        f"(validation and test texts), the model {DEFAULT_MODEL}. The closed form and the averages are described in "
        "`docs/how-to/train-word-vectors.md`."
    )
    return Outcome([about, table(header, rows)])


def _trained(setting: Setting, corpus: Path, settings: Sequence[B2sSettings]) -> Iterator[list[str]]:
    for number, one in enumerate(settings):
        say(f"B2S, {one}")
        out = setting.folder / f"b2s-{number}"
        report = train_b2s(B2sRequest(corpus, _PLAIN, out, one))
        name = f"B2S, minimum count {one.min_count}, learning rate {one.learning_rate:g}, {one.epochs} epochs"
        loss = f"loss {report['losses'][0]:.1f} to {report['losses'][-1]:.1f}"
        yield [f"{name}, {loss}", f"{report['words']:,}", *_similarity(setting, out / VECTORS), "", ""]


def _closed(setting: Setting, corpus: Path, counts: Sequence[int]) -> Iterator[list[str]]:
    """Yield the solution that logistic regression has for normally distributed contexts, and the missing words."""
    sides = [text for task in _tasks(setting) for text in task.documents]
    for count in counts:
        words = CorpusWords.of(Corpus(corpus), B2sSettings(min_count=count))
        texts = list(words.texts())
        contexts = Embedder(_PLAIN).fit_extractor(texts).raw_documents(texts)
        owners = np.repeat(np.arange(len(words)), np.diff(words.starts))
        sums = np.zeros((len(words.names), contexts.shape[1]))
        np.add.at(sums, words.ids, contexts[owners])
        differences = sums / words.counts[:, None] - contexts.mean(axis=0)
        covariance = np.cov(contexts.T)
        covariance += np.eye(len(covariance)) * np.trace(covariance) / len(covariance)
        vectors = np.linalg.solve(covariance, differences.T).T
        known = set(words.names)
        missing = [_missing(text, known) for text in sides]
        found = sum(number for number, _ in missing), sum(lacking for _, lacking in missing)
        yield [
            f"closed form, minimum count {count}",
            f"{len(words.names):,}",
            *_scores(setting, words.names, vectors),
            f"{100 * found[1] / found[0]:.0f} %",
            f"{100 * sum(lacking > 0 for _, lacking in missing) / len(sides):.0f} %",
        ]


def _missing(text: str, known: set[str]) -> tuple[int, int]:
    """Return the number of words of a text, and of those without a vector."""
    parts = [form[:1] if form[0] in known else form[1:] for form in word_forms(text)]
    words = [word for part in parts for word in part if any(map(str.isalpha, word))]
    return len(words), sum(word not in known for word in words)


def _averages(setting: Setting, corpus: Path, counts: Sequence[int]) -> Iterator[list[str]]:
    """Yield averages for all words, and for the words of the corpus only."""
    texts = list(Corpus(corpus))
    embedder = Embedder(_PLAIN.replace(extractor="avg", layers="last")).fit(texts)
    for count in counts:
        names = CorpusWords.of(Corpus(corpus), B2sSettings(min_count=count)).names
        vectors = embedder.raw_documents(names)
        name = f"`avg`, words with minimum count {count}"
        yield [name, f"{len(names):,}", *_scores(setting, names, vectors), "", ""]
    forms = (form for task in _tasks(setting) for text in task.documents for form in word_forms(text))
    every = sorted({word for form in forms for word in form})
    yield ["`avg`, all words", f"{len(every):,}", *_scores(setting, every, embedder.raw_documents(every)), "", ""]


def _scores(setting: Setting, names: Sequence[str], vectors: Floats) -> list[str]:
    file = setting.folder / "vectors.bin"
    write_vectors(file, names, vectors)
    return _similarity(setting, file)


def _similarity(setting: Setting, file: Path) -> list[str]:
    plain = _PLAIN.replace(model=str(file), extractor="words", postprocess=("center",))
    configs = [plain, plain.replace(weighting="idf")]
    scores = [[one.scores["spearman"] for _, one in evaluate(task, configs)] for task in _tasks(setting)]
    return [f"{mean:.1f}" for mean in np.mean(scores, axis=0)]


def _tasks(setting: Setting) -> list[Task]:
    return [read_sts(setting.data / "sts" / f"{name}.tsv") for name in _STS[: setting.choose(3, 1)]]
