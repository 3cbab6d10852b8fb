"""A Ray cluster of several nodes on one machine, in a network namespace of its own that has nothing but a loopback.

As a program it brings up the loopback of its namespace and becomes ``python SCRIPT ARGUMENT...``.
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

from ragembed.ray_cluster import QUIET

OBJECT_STORE_BYTES = 80 << 20
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "grpc_proxy")
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40


def why_no_namespace() -> str | None:
    """Why this machine gives no process a network of its own; None where it does."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return "network namespaces need Linux and the program unshare"
    tried = subprocess.run(["unshare", "-n", "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"no network namespace may be made here: {tried.stderr.strip()}"


def run_in_namespace(script: Path, *args: object, timeout: float = 300) -> Any:
    """Run a script of Python in a network of its own; what it printed last, read as JSON."""
    # Ray's sockets lie in its folder, and the name of a socket may have 107 characters.
    folder = tempfile.mkdtemp(prefix="ray-")
    kept = {name: value for name, value in os.environ.items() if name.lower() not in PROXIES and name[:4] != "RAY_"}
    settings = {"HOME": folder, "RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    # What other programs have in memory is no reason to kill a worker of these.
    settings["RAY_memory_monitor_refresh_ms"] = "0"
    # The script starts the cluster, and so imports Ray before ragembed can set these.
    settings |= QUIET
    command = ["unshare", "-n", sys.executable, __file__, str(script), *map(str, args)]
    process = subprocess.Popen(
        command,
        # Workers look for modules in the folder of the program too: that of the sources would hide what is installed.
        cwd=folder,
        env=kept | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, told = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, told = process.communicate()
        raise AssertionError(f"{script.name} took more than {timeout} s:\n{said}\n{told}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert process.returncode == 0, f"{said}\n{told}"
    return {**json.loads(said.strip().split("\n")[-1]), "stdout": said, "stderr": told}


@contextmanager
def cluster(*cpus: int, gpus: int = 0) -> Iterator[Any]:
    """Nodes with so many CPUs each, the head first, as Ray's own tests start them; the head says it has ``gpus``."""
    from ray.cluster_utils import Cluster

    common = {"object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False, "node_ip_address": "127.0.0.1"}
    # A node whose process is gone is missed after a second and a half; one that is only slow is not.
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
