"""A Ray cluster of several nodes on one machine, in a network namespace with only a loopback interface.

As a program, this file brings up the loopback interface of its namespace and then runs ``python SCRIPT ARGUMENT...``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragembed.distributed.ray_workers import QUIET

OBJECT_STORE_BYTES = 80 << 20
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "grpc_proxy")
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40


def why_no_namespace() -> str | None:
    """Return the reason why the machine cannot create network namespaces, or None if it can."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return "network namespaces need Linux and the program unshare"
    tried = subprocess.run(["unshare", "-n", "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"cannot create a network namespace: {tried.stderr.strip()}"


def run_in_namespace(script: Path, *args: object, timeout: float = 300) -> Any:
    """Run a Python script in a new network namespace. Return the last line of its output, parsed as JSON."""
    # Ray creates its sockets in this folder, and the path of a socket has at most 107 characters.
    folder = tempfile.mkdtemp(prefix="ray-")
    kept = {name: value for name, value in os.environ.items() if name.lower() not in PROXIES and name[:4] != "RAY_"}
    settings = {"HOME": folder, "RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    # Ray must not kill workers because other programs use a lot of memory.
    settings["RAY_memory_monitor_refresh_ms"] = "0"
    # The script starts the cluster and imports Ray before ragembed can set these variables.
    settings |= QUIET
    command = ["unshare", "-n", sys.executable, __file__, str(script), *map(str, args)]
    process = subprocess.Popen(
        command,
        # Workers also import modules from the working directory. The source folder would hide the installed package.
        cwd=folder,
        env=kept | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        raise AssertionError(f"{script.name} took more than {timeout} s:\n{output}\n{errors}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert process.returncode == 0, f"{output}\n{errors}"
    return {**json.loads(output.strip().split("\n")[-1]), "stdout": output, "stderr": errors}


@contextmanager
def cluster(*cpus: int, gpus: int = 0) -> Iterator[Any]:
    """Start one node per number of ``cpus``, the head first, as in Ray's own tests. The head reports ``gpus`` GPUs."""
    from ray.cluster_utils import Cluster

    common = {"object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False, "node_ip_address": "127.0.0.1"}
    # Ray detects a dead node after 1.5 seconds, but does not take a slow node for a dead one.
    checks = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
    head = {**common, "num_cpus": cpus[0], "num_gpus": gpus, "_system_config": checks}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    try:
        for count in cpus[1:]:
            nodes.add_node(**common, num_cpus=count)
        nodes.wait_for_nodes()
        yield nodes
    finally:
        nodes.shutdown()


def _bring_up_loopback() -> None:
    import fcntl
    import socket

    request = struct.pack("16sH22x", b"lo", IFF_UP | IFF_RUNNING)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        fcntl.ioctl(connection, SIOCSIFFLAGS, request)


if __name__ == "__main__":
    _bring_up_loopback()
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
