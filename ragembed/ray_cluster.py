"""The one place where ragembed connects to Ray: to a cluster that runs, or to a node that it starts and ends."""

from __future__ import annotations

import logging
import math
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragembed.errors import ConfigError, WorkerLostError
from ragembed.extras import needed_for

# What goes through Ray are numbers and short records; vectors go through files. Ray refuses less than 75 MiB.
OBJECT_STORE_BYTES = 100 << 20
# What Ray would print of deaths that it mends, on stdout, and of its inner workings; whoever sets these sees it all.
QUIET = {"RAY_DEDUP_LOGS_SKIP_REGEX": ".", "RAY_BACKEND_LOG_LEVEL": "fatal"}
# A head node that takes longer to accept a connection is not there.
REACH_SECONDS = 10.0


@contextmanager
def connected(address: str | None = None, *, cpus: float | None = None) -> Iterator[Any]:
    """Be connected to Ray, and yield the module ``ray``.

    ``address`` is the head node's, as ``HOST:PORT`` or ``auto`` for a cluster that this machine is a node of; without
    it the environment's ``RAY_ADDRESS`` counts, and without that a node is started on this machine, with ``cpus``
    CPUs (as many as there are by default). At the end the connection is closed, which ends every actor it made, and
    with it the node if it was started here. Where this process is connected already, that connection is used and
    left as it is. Ray's own logs have what it says of the run; the terminal shows errors alone.

    Raises :class:`MissingExtraError` without the package, :class:`ConfigError` for an address that is none, and
    :class:`WorkerLostError` where no cluster answers or no node starts.
    """
    chosen = address or os.environ.get("RAY_ADDRESS") or "local"
    _check_written(chosen)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    with needed_for("a Ray cluster"), _no_advice():
        import ray
    if ray.is_initialized():
        _check_same(ray, address)
        yield ray
        return
    try:
        _connect(ray, chosen, cpus)
        yield ray
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str, cpus: float | None) -> None:
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == "local":
        # Without a route Ray finds no address for the node; the loopback's always is one.
        options |= {"_node_ip_address": "127.0.0.1", "object_store_memory": OBJECT_STORE_BYTES}
        options |= {"include_dashboard": False, "num_cpus": None if cpus is None else math.ceil(cpus)}
    elif address != "auto":
        _check_answers(address)
    try:
        with _no_advice(), _no_chatter():
            ray.init(address, **options)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        if address == "local":
            raise WorkerLostError(f"Ray did not start on this machine: {error}") from error
        raise WorkerLostError(
            f"the Ray cluster at {address!r} cannot be used from this machine ({error}): it has to be a node of the"
            " cluster ('ray start --address HOST:PORT'), with the same versions of Python and Ray"
        ) from error


def _check_written(address: str) -> None:
    if address not in ("local", "auto"):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or "/" in host:
            raise ConfigError(f"{address!r} is no address of a Ray cluster: expected HOST:PORT of its head, or 'auto'")


def _check_answers(address: str) -> None:
    """Find out here that nobody listens: Ray itself tries for a long time, and may end the process."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()
    except OSError as error:
        raise WorkerLostError(
            f"no Ray cluster answers at {address} ({error}): give the address that 'ray start --head' printed there"
        ) from error


def _check_same(ray: Any, address: str | None) -> None:
    there = ray.get_runtime_context().gcs_address
    if address not in (None, "local", "auto", there):
        raise ConfigError(f"this process is connected to Ray at {there} already, not at {address}: give no address")


@contextmanager
def _no_advice() -> Iterator[None]:
    """Keep back Ray's tips on its own next versions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@contextmanager
def _no_chatter() -> Iterator[None]:
    """Keep what Ray's compiled parts write while they start from the terminal: what goes wrong is raised."""
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
