"""Where the segments of a store are searched: in this process, or on the actors of a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from ragembed.errors import ConfigError
from ragembed.indexes.fanout import LocalSegments
from ragembed.indexes.view import SegmentSearch

Engine = Literal["local", "ray"]
ENGINES: tuple[Engine, ...] = get_args(Engine)


def segment_search(
    path: Path, engine: Engine, address: str | None, replicas: int, threads: int | None, search_device: str
) -> SegmentSearch:
    """Return what searches the segments of the store at ``path``; the arguments are those of ``Store.open``.

    Raises :class:`ConfigError` for an engine that there is not, and for what is not for the engine, and what
    :func:`ragembed.ray_cluster.connected` raises.
    """
    if engine not in ENGINES:
        raise ConfigError(f"unknown engine {engine!r}: expected one of {', '.join(ENGINES)}")
    if threads is not None and threads < 1:
        raise ConfigError(f"threads is {threads}: expected 1 or more")
    if replicas < 1:
        raise ConfigError(f"replicas is {replicas}: expected 1 or more")
    if engine == "local":
        if address is not None or replicas > 1:
            raise ConfigError("address and replicas are of a Ray cluster: open the store with engine='ray'")
        return LocalSegments(threads if search_device == "cpu" else 1)
    if threads is not None or search_device != "cpu":
        raise ConfigError(
            "threads and search_device are for engine='local': on Ray each actor searches in one thread, and more "
            "shards or replicas take their place"
        )
    from ragembed.indexes.ray_search import RaySegments

    return RaySegments(path, address, replicas)
