"""Every exception ragembed raises on purpose, in one tree.

::

    RagembedError
    ├── ConfigError            an option or configuration value that is not accepted
    │   ├── BudgetError        no index keeps to the memory, latency and recall that were asked for
    │   └── RankError          a post-processor has more directions than the vectors it is fitted on
    ├── GpuError               a GPU that was asked for is not there, or has too little memory
    ├── MissingExtraError      an optional package is not installed; names the pip line
    ├── ModelError             a model cannot be found, read or trusted
    ├── NotFittedError         an embedder is used before ``fit``
    ├── DocumentError          one file cannot be read as text; indexing skips it and goes on
    ├── DictionaryError        a dictionary cannot be read, or one of its entries has no definition
    ├── TrainingError          a training cannot go on, or has left nothing that can be used
    ├── WorkerLostError        a worker died again and again, or a cluster cannot be reached
    └── StoreError             a store cannot be opened, read or written
        ├── StoreNotFoundError     there is no store where one was expected
        ├── StoreLockedError       another process is writing to the store
        ├── StoreDamagedError      a file of the store is missing or not what was committed
        └── IncompatibleStoreError format version, model or dimension does not match
            └── DimensionError         the dimension does not, or what is given is no vector

    IndexWarning (a UserWarning)   an index finds less than it should, or has outgrown what was asked of it

A message gives the value met, the value expected and the remedy. The command line prints it as one
line and exits with 2.
"""

from __future__ import annotations


class RagembedError(Exception):
    """Base of all errors raised on purpose by ragembed."""


class ConfigError(RagembedError, ValueError):
    """An option or configuration value is not accepted."""


class BudgetError(ConfigError):
    """No index keeps to the memory, latency and recall that were asked for; the message names the closest."""


class RankError(ConfigError):
    """A post-processor is to have more directions than the vectors that it is fitted on."""


class GpuError(RagembedError):
    """A GPU that was asked for is not there, or has too little memory."""


class MissingExtraError(RagembedError, ImportError):
    """An optional package is not installed; the message holds the exact ``pip install`` line."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed: pip install 'ragembed[{extra}]'"
        )
        self.package = package
        self.extra = extra
        self.purpose = purpose

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str, str]]:
        # An exception is made again from its message alone, in whichever process it is sent to.
        return type(self), (self.package, self.extra, self.purpose)


class ModelError(RagembedError):
    """A model cannot be found, read or trusted."""


class NotFittedError(RagembedError, ValueError):
    """An embedder or post-processor is used before it was fitted."""


class DocumentError(RagembedError):
    """One document cannot be read as text; the message is the reason shown for the skipped file."""


class DictionaryError(RagembedError):
    """A dictionary cannot be read, or one of its entries has no definition; the message names file and entry."""


class TrainingError(RagembedError):
    """A training cannot go on (its loss is not finite), or a folder is no outcome of one."""


class WorkerLostError(RagembedError):
    """The worker of one task died again and again, or the cluster that was to do it cannot be reached."""


class StoreError(RagembedError):
    """A store cannot be opened, read or written."""


class StoreNotFoundError(StoreError):
    """There is no store where one was expected."""


class StoreLockedError(StoreError):
    """Another process is writing to the store."""


class StoreDamagedError(StoreError):
    """A file of the store is missing or is not what was committed."""


class IncompatibleStoreError(StoreError):
    """The format version, the model or the dimension of a store does not match what is asked of it."""


class DimensionError(IncompatibleStoreError, ValueError):
    """Vectors have another shape or dimension than the store's."""


class IndexWarning(UserWarning):
    """An approximate index finds less than it should, or has outgrown what was asked of it."""
