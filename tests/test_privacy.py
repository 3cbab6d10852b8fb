"""No command connects to another machine unless the user names one, and none shows a secret.

``GUARD`` runs at the start of every process of the commands. It notes each name that is looked up and each address
that is connected to, except Unix sockets and this machine, and refuses it. If the system permits, the processes also
have a network without routes. Its counter of packets without a route covers libraries that are not written in Python.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ragembed.cli import COMMANDS
from tests.embedding_server import status
from tests.serving.processes import StdioServer

pytestmark = [
    pytest.mark.usefixtures("needs_minilm"),
    pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets and signals"),
]

GUARD = """
import atexit, os, sys

def note(line):
    with open(os.environ["ATTEMPTS"], "a") as file:
        file.write(f"{line}\\n")

def local(address):
    return not isinstance(address, tuple) or address[0] in ("127.0.0.1", "::1", "localhost", "0.0.0.0")

def watch(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = arguments[1]
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        address = (arguments[0],)
    else:
        return
    if address is not None and address != (None,) and not local(address):
        note(f"{event} {address}")
        raise OSError(f"{event} of {address} is refused")

def count():
    names, values = [line.split() for line in open("/proc/self/net/snmp") if line.startswith("Ip:")]
    numbers = {**dict(zip(names, values)), **dict(line.split() for line in open("/proc/self/net/snmp6"))}
    if packets := int(numbers["OutNoRoutes"]) + int(numbers["Ip6OutNoRoutes"]):
        note(f"{packets} packets without a route")

sys.addaudithook(watch)
if os.environ.get("HAS_NO_ROUTE"):
    atexit.register(count)
"""
PROGRAM = """
import json, sys
from ragembed.cli import main
for line in sys.stdin:
    try:
        main(json.loads(line), prog_name="ragembed")
    except SystemExit as end:
        print("exit status", end.code, line, file=sys.stderr)
"""
NAMESPACE = ("unshare", "--user", "--map-root-user", "--net")
TEXTS = {
    "locks.md": "# Locks\n\nThe writer holds the lock of the store.\n",
    "tea.md": "# Tea\n\nGreen tea is brewed at eighty degrees.\n",
    "wings.txt": "Supersonic air flows over a wing.\n",
}
SECRET = "s3cret"


def has_namespaces() -> bool:
    """Return whether this user may create a network without routes."""
    try:
        return subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture
def guarded(tmp_path, monkeypatch):
    """The command of a watched Python in a folder with documents; the file ``attempts`` gets its connections."""
    alone = has_namespaces()
    (tmp_path / "guard").mkdir()
    (tmp_path / "guard" / "sitecustomize.py").write_text(GUARD)
    (tmp_path / "docs").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / "docs" / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HF_HUB_OFFLINE")  # which would hide an attempt to connect to the hub
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "guard"))
    monkeypatch.setenv("ATTEMPTS", str(tmp_path / "attempts"))
    monkeypatch.setenv("HAS_NO_ROUTE", "1" if alone else "")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    return (*NAMESPACE, sys.executable) if alone else (sys.executable,)


def attempts() -> str:
    file = Path("attempts")
    return file.read_text() if file.exists() else ""


def run(python, *commands):
    """Run commands of ragembed in one process; return their output and the lines about failures."""
    lines = "\n".join(json.dumps([str(word) for word in command]) for command in commands)
    done = subprocess.run([*python, "-c", PROGRAM], input=lines, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr, [line for line in done.stderr.splitlines() if line.startswith("exit status")]


def test_no_command_connects(guarded, tiny_model):
    Path("pairs.tsv").write_text("score\tsentence1\tsentence2\n1\ta cat\ta dog\n2\ta cat\tthe cat\n0\ta cat\ta zebra\n")
    Path("words.tsv").write_text("cat\tit sleeps\ncat\tit runs\ndog\tit swims\nbird\tit flies\n")
    train = ("defsent-plus", "--dictionary", "words.tsv", "--model", tiny_model, "--out", "trained", "--device", "cpu")
    commands = [
        ("index", "docs"),
        ("query", "who may write"),
        ("context", "who may write"),
        ("why-not", "who may write", "docs/tea.md"),
        ("status",),
        ("files", "docs"),
        ("chunks", "docs/tea.md"),
        ("refit",),
        ("tune", "--refit-only", "-q"),
        ("optimize",),
        ("verify",),
        ("models",),
        ("eval", "sts", "pairs.tsv", "--model", tiny_model),
        ("train", *train, "--held-out", 1, "--steps", 1, "--ica", "none", "--learning-rate", 1e-4, "-q"),
        ("reverse-dictionary", "trained", "an animal"),
        ("delete", "docs/tea.md"),
    ]
    output, failures = run(guarded, *commands)
    assert not [line for line in failures if not line.startswith("exit status 0")], output
    serving = [watch(guarded), serve(guarded), agents(guarded)]
    assert {*(command[0] for command in commands), *serving} == set(COMMANDS)
    assert attempts() == ""


def watch(python) -> str:
    process = subprocess.Popen([*python, "-m", "ragembed", "watch", "--poll"], stdout=subprocess.PIPE, text=True)
    assert "docs" not in process.stdout.readline()  # the file that was deleted from the store is back
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    return "watch"


def serve(python) -> str:
    command = [*python, "-m", "ragembed", "serve", "--uds", "socket"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    process.stderr.readline()
    log = threading.Thread(target=process.stderr.read)  # a pipe that nobody reads would stop the server
    log.start()
    for path in ("/", "/v1/search?query=tea", "/v1/status", "/docs", "/metrics"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("socket")
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            assert client.recv(20).startswith(b"HTTP/1.1 "), path
    process.terminate()
    process.wait(timeout=60)
    log.join()
    process.stderr.close()
    return "serve"


def agents(python) -> str:
    server = StdioServer(Path(), [*python, "-m", "ragembed", "mcp"])
    assert "tea.md" in json.dumps(server.call("search", query="hot water"))
    server.end()
    return "mcp"


def test_an_attempt_to_connect_is_noted(guarded):
    output, [failure] = run(guarded, ("index", "docs", "--model", "somebody/else"))
    assert failure.startswith("exit status 2"), output
    assert "huggingface.co" in attempts()


def test_a_connection_of_other_code_is_noted(guarded):
    if len(guarded) == 1:
        pytest.skip("this user may not create network namespaces (unshare)")
    code = (
        "import ctypes, socket, struct; libc = ctypes.CDLL(None); "
        "address = struct.pack('=H2s4s8x', 2, b'\\0P', bytes([192, 0, 2, 1])); "
        "print(libc.connect(libc.socket(2, 1, 0), address, 16))"
    )
    done = subprocess.run([*guarded, "-c", code], capture_output=True, text=True)
    assert done.stdout == "-1\n", done.stderr
    assert attempts() == "1 packets without a route\n"
