"""All exceptions that ragembed raises on purpose.

::

    RagembedError
    ├── ConfigError            an option or a configuration value is not accepted
    │   ├── BudgetError        no index meets the limits of memory, latency and recall
    │   └── RankError          a post-processor needs more directions than its vectors have
    ├── OutOfMemoryError       the memory of the process ran out, or does not suffice for a library
    ├── GpuError               the requested GPU is missing or has too little memory
    ├── MissingExtraError      an optional package is not installed; names the pip command
    ├── ModelError             a model cannot be found, read or trusted
    ├── NotFittedError         an embedder or post-processor is used before it is fitted
    ├── DocumentError          a file cannot be read as text; indexing skips it
    ├── DictionaryError        a dictionary cannot be read, or an entry has no definition
    ├── TrainingError          a training cannot continue, or a folder holds no trained model
    ├── WorkerLostError        a worker died repeatedly, or a cluster cannot be reached
    └── StoreError             a store cannot be opened, read or written
        ├── StoreNotFoundError     the folder holds no store
        ├── StoreLockedError       another process is writing to the store
        ├── StoreDamagedError      a file of the store is missing or differs from what was committed
        └── IncompatibleStoreError the format version, the model or the dimension does not match
            └── DimensionError         vectors have another shape or dimension than the store

    IndexWarning (a UserWarning)   an index has a lower recall than it should, or exceeds its limits

Every message gives the actual value, the expected value and the remedy. The command line prints the message on one line
and exits with status 2. Catch :class:`RagembedError` to handle all of them.
"""

from __future__ import annotations

from ragembed.version import install_command


class RagembedError(Exception):
    """Base class of all errors that ragembed raises on purpose.

    Catch it to handle any failure of ragembed in one place. Every message says what to do.

    Examples
    --------
    >>> import ragembed
    >>> from ragembed.errors import RagembedError
    >>> try:
    ...     ragembed.search("tea", store="no-such-store")
    ... except RagembedError as error:
    ...     print(type(error).__name__)
    StoreNotFoundError
    """


class ConfigError(RagembedError, ValueError):
    """An option or a configuration value is not accepted: correct the value that the message names."""


class BudgetError(ConfigError):
    """No index meets the limits of memory, latency and recall: raise a limit, or lower the required recall."""


class RankError(ConfigError):
    """A post-processor needs more directions than the rank of the vectors that it is fitted on: use fewer."""


class GpuError(RagembedError):
    """The requested GPU is missing or has too little memory: check the driver, or choose another device."""


class OutOfMemoryError(RagembedError, MemoryError):
    """The memory of the process ran out, or does not suffice to load a library; the store stays as it was."""


class MissingExtraError(RagembedError, ImportError):
    """An optional ``package``, which a feature, the ``purpose``, needs, is not installed; or several, ``"a, b"``.

    Run the ``pip install`` command in the message, which installs the ``extra``.
    """

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        what = f"packages {package}, which are" if ", " in package else f"package {package!r}, which is"
        super().__init__(f"{purpose} needs the {what} not installed: {install_command(extra)}")
        self.package = package
        self.extra = extra
        self.purpose = purpose

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str, str]]:
        # By default, unpickling passes the message alone to the constructor, which takes three arguments.
        return type(self), (self.package, self.extra, self.purpose)


class ModelError(RagembedError):
    """A model cannot be found, read or trusted: give another model, allow the download, or get the files again."""


class NotFittedError(RagembedError, ValueError):
    """An embedder or a post-processor is used before it is fitted: call ``fit`` first, or load a fitted one."""


class DocumentError(RagembedError):
    """A file cannot be read as text. Indexing skips the file and reports the message as the reason."""


class DictionaryError(RagembedError):
    """A dictionary cannot be read, or one of its entries has no definition."""


class TrainingError(RagembedError):
    """A training cannot continue, because the loss is not finite, or a folder holds no finished training."""


class WorkerLostError(RagembedError):
    """A worker process died repeatedly, or a cluster cannot be reached. A committed store stays valid."""


class StoreError(RagembedError):
    """A store cannot be opened, read or written. The message names the store and the remedy."""


class StoreNotFoundError(StoreError):
    """The folder holds no store: index something into it first, or give the folder of an existing store."""


class StoreLockedError(StoreError):
    """Another process is writing to the store. Reading is possible in the meantime."""


class StoreDamagedError(StoreError):
    """A file of the store is missing or differs from what was committed: run ``ragembed doctor --repair``."""


class IncompatibleStoreError(StoreError):
    """The format version, the model or the dimension of a store does not match."""


class DimensionError(IncompatibleStoreError, ValueError):
    """Vectors have another shape or dimension than the store: encode with the model that it was made with."""


class IndexWarning(UserWarning):
    """An approximate index has a lower recall than it should, or exceeds its limits. The store stays usable."""
