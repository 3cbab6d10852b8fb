"""Which files below the given places are read, and why others are not; see :mod:`walking` for what decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from pathlib import Path

from ragembed.documents.places import Place, RemotePath, exists
from ragembed.documents.trees import LocalTree, RemoteTree, Status, Tree, shown
from ragembed.documents.walking import Candidate, DiscoveryOptions, Walk
from ragembed.errors import ConfigError

__all__ = ["Candidate", "DiscoveryOptions", "discover", "why"]


def discover(
    paths: Sequence[Place], options: DiscoveryOptions | None = None, *, pruned: bool = False
) -> Iterator[Candidate]:
    """Yield every file below ``paths``, in the order of ``paths`` and of the names below each.

    A path given is itself followed even if it is a link, hidden or ignored; a file given is skipped only for its
    size or as binary. Where one path lies in another, the inner one's files are its own and come once. Folders that
    a rule excludes are not entered and come only with ``pruned``; folders that cannot be read always come.

    Raises:
        ConfigError: one of ``paths`` does not exist or cannot be reached, a glob is no pattern, or an ignore file above
            a root cannot be read. Raised before the first file.
        MissingExtraError: one of ``paths`` is a URL and fsspec is not installed; likewise.
    """
    walks = _walks(paths, options or DiscoveryOptions())
    return (
        found.candidate
        for walk in walks
        for found in walk.run()
        if pruned or found.failed or not found.candidate.is_dir
    )


def why(path: Place, paths: Sequence[Place], options: DiscoveryOptions | None = None) -> str:
    """Tell in one sentence whether :func:`discover` would have ``path`` read, and by which rule.

    Raises:
        ConfigError: as :func:`discover`.
        OSError: ``path`` is a URL that cannot be reached.
    """
    name = shown(path)
    walks = _walks(paths, options or DiscoveryOptions())
    places = [(parts, walk) for walk in walks if (parts := walk.tree.parts_of(path)) is not None]
    if not exists(path):
        return f"{name} does not exist"
    if not places:
        return f"{name} is not read: it lies outside {', '.join(shown(walk.tree.root) for walk in walks)}"
    parts, walk = min(places, key=lambda place: len(place[0]))
    found = next(walk.run(only=parts), None)
    if found is None:
        return f"{name} is a folder that is searched"
    candidate = found.candidate
    if candidate.skipped is None:
        return f"{name} is read" + (f": taken back in by {shown(found.rule)}" if found.rule else "")
    if candidate.path != walk.tree.place("/".join(parts)):
        return f"{name} is not read, because {shown(candidate.path)} is not: {candidate.skipped}"
    return f"{name} is not read: {candidate.skipped}"


def _walks(paths: Sequence[Place], options: DiscoveryOptions) -> list[Walk]:
    roots: dict[Place, tuple[Place, Status]] = {}
    for path in paths:
        status = _look_up(path)
        roots.setdefault(path if isinstance(path, RemotePath) else path.resolve(), (path, status))
    others: Set[Place] = roots.keys() if len(roots) > 1 else frozenset()
    return [Walk(_tree(root, status, others), options) for root, status in roots.values()]


def _look_up(path: Place) -> Status:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        link = isinstance(path, Path) and path.is_symlink()
        problem = "is a symbolic link to nothing" if link else "does not exist"
        raise ConfigError(f"{shown(path)} {problem}: give a file or folder to read") from error
    except OSError as error:
        raise ConfigError(f"{shown(path)} cannot be looked up: {error.strerror}") from error


def _tree(root: Place, status: Status, roots: Set[Place]) -> Tree:
    return RemoteTree(root, status, roots) if isinstance(root, RemotePath) else LocalTree(root, status, roots)
