"""Every exception ragembed raises on purpose, in one tree.

::

    RagembedError
    ├── ConfigError            an option or a configuration value is not accepted
    │   ├── BudgetError        no index meets the limits of memory, latency and recall
    │   └── RankError          a post-processor needs more directions than its vectors have
    ├── GpuError               the requested GPU is missing or has too little memory
    ├── MissingExtraError      an optional package is not installed; names the pip command
    ├── ModelError             a model cannot be found, read or trusted
    ├── NotFittedError         an embedder or post-processor is used before it is fitted
    ├── DocumentError          a file cannot be read as text; indexing skips it
    ├── DictionaryError        a dictionary cannot be read, or an entry has no definition
    ├── TrainingError          a training cannot continue, or a folder holds no trained model
    ├── WorkerLostError        a worker died repeatedly, or a cluster cannot be reached
    └── StoreError             a store cannot be opened, read or written
        ├── StoreNotFoundError     there is no store
        ├── StoreLockedError       another process is writing to the store
        ├── StoreDamagedError      a file of the store is missing or differs from what was committed
        └── IncompatibleStoreError the format version, the model or the dimension does not match
            └── DimensionError         vectors have another shape or dimension than the store

    IndexWarning (a UserWarning)   an index finds less than it should, or exceeds its limits

A message gives the actual value, the expected one and the remedy. The command line prints it as one line and exits
with 2.
"""

from __future__ import annotations


class RagembedError(Exception):
    """Base of all errors that ragembed raises on purpose."""


class ConfigError(RagembedError, ValueError):
    """An option or configuration value is not accepted."""


class BudgetError(ConfigError):
    """No index meets the limits of memory, latency and recall; the message names the closest index."""


class RankError(ConfigError):
    """A post-processor needs more directions than the vectors that it is fitted on have."""


class GpuError(RagembedError):
    """The requested GPU is missing or has too little memory."""


class MissingExtraError(RagembedError, ImportError):
    """An optional package is not installed; the message gives the ``pip install`` command."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed: pip install 'ragembed[{extra}]'"
        )
        self.package = package
        self.extra = extra
        self.purpose = purpose

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str, str]]:
        # Unpickling, in another process, would otherwise pass the message alone to the constructor.
        return type(self), (self.package, self.extra, self.purpose)


class ModelError(RagembedError):
    """A model cannot be found, read or trusted."""


class NotFittedError(RagembedError, ValueError):
    """An embedder or post-processor is used before it is fitted."""


class DocumentError(RagembedError):
    """A file cannot be read as text; the message is the reason that is shown for the skipped file."""


class DictionaryError(RagembedError):
    """A dictionary cannot be read, or an entry has no definition; the message names file and entry."""


class TrainingError(RagembedError):
    """A training cannot continue because its loss is not finite, or a folder holds no trained model."""


class WorkerLostError(RagembedError):
    """The worker of a task died repeatedly, or the cluster cannot be reached."""


class StoreError(RagembedError):
    """A store cannot be opened, read or written."""


class StoreNotFoundError(StoreError):
    """There is no store."""


class StoreLockedError(StoreError):
    """Another process is writing to the store."""


class StoreDamagedError(StoreError):
    """A file of the store is missing or differs from what was committed."""


class IncompatibleStoreError(StoreError):
    """The format version, the model or the dimension of a store does not match."""


class DimensionError(IncompatibleStoreError, ValueError):
    """Vectors have another shape or dimension than the store."""


class IndexWarning(UserWarning):
    """An approximate index finds less than it should, or exceeds its limits."""
