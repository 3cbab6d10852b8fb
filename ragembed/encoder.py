"""What a store needs from an embedder, and what it may ask of any: the base class of all embedders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ragembed.types import Floats

if TYPE_CHECKING:
    from ragembed.embedder import Embedder


class VectorEncoder(ABC):
    """The base class of the embedders that a store accepts.

    :class:`ragembed.Embedder` is one. Derive your own class to store vectors of another model: define
    ``fingerprint``, ``raw_fingerprint`` and the first five methods. All arrays are float32, shape ``(n, d)``, with one
    row per text.

    Examples
    --------
    An embedder that counts the letters of each text:

    >>> import numpy as np
    >>> from ragembed import Store
    >>> from ragembed.indexes import VectorEncoder
    >>> class LetterCounts(VectorEncoder):
    ...     fingerprint = raw_fingerprint = "0123456789abcdef0123456789abcdef"
    ...
    ...     def raw_documents(self, texts, progress=None):
    ...         letters = "abcdefghijklmnopqrstuvwxyz"
    ...         return np.array([[text.count(letter) for letter in letters] for text in texts], np.float32)
    ...
    ...     def postprocess_documents(self, raw):
    ...         return raw
    ...
    ...     def encode_queries(self, texts):
    ...         return self.raw_documents(texts)
    ...
    ...     def describe(self):
    ...         return {"kind": "letters", "model": "a to z"}
    ...
    ...     def save(self, folder):
    ...         pass
    >>> with Store.create("letters", LetterCounts()) as store:
    ...     ids = store.add(["tea with milk", "birds fly south"], ids=["tea", "bird"])
    ...     [hit.id for hit in store.search("bird", k=1, mode="dense")]
    ['bird']
    """

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Hash of all settings and data that the vectors depend on, as 32 lower-case hexadecimal digits."""

    @property
    @abstractmethod
    def raw_fingerprint(self) -> str:
        """Hash of all settings and data that the raw vectors depend on."""

    @abstractmethod
    def raw_documents(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Floats:
        """Encode documents, without post-processing, as raw vectors, float32, shape ``(n, d)``.

        Parameters
        ----------
        texts : sequence of str
            Texts to encode.
        progress : callable, optional
            Function that is called from time to time with the number of texts encoded since the last call.
        """

    @abstractmethod
    def postprocess_documents(self, raw: Floats) -> Floats:
        """Turn raw document vectors into document vectors, float32, shape ``(n, d')``.

        Parameters
        ----------
        raw : numpy.ndarray
            Raw vectors, float32, shape ``(n, d)``.
        """

    @abstractmethod
    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Encode queries, with post-processing, as vectors, float32, shape ``(n, d')``.

        Parameters
        ----------
        texts : sequence of str
            Queries to encode.
        """

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """Return JSON values for ``ragembed status``. The keys ``"kind"`` and ``"model"`` are required."""

    @abstractmethod
    def save(self, folder: str) -> None:
        """Write the files that another process needs to load the embedder, or nothing if it cannot be loaded.

        Parameters
        ----------
        folder : str
            An existing folder.
        """

    def encode_documents(self, texts: Sequence[str]) -> Floats:
        """Encode documents, with post-processing, as vectors, float32, shape ``(n, d')``.

        Parameters
        ----------
        texts : sequence of str
            Texts to encode.
        """
        return self.postprocess_documents(self.raw_documents(texts))

    @property
    def refittable(self) -> Embedder | None:
        """The embedder itself if a store can fit it again: a :class:`ragembed.Embedder`. None for any other."""
        return None

    @property
    def is_remote(self) -> bool:
        """Whether a server or another library makes the raw vectors of a :class:`ragembed.Embedder`."""
        return False

    @property
    def seed(self) -> int:
        """The seed of samples that are drawn from the texts of a store."""
        return 0

    def device_names(self) -> tuple[str, ...]:
        """Return the PyTorch names of the devices that encode documents, if any are known."""
        return ()
