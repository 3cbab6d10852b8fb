"""No command connects to another machine unless the user names one, and none shows a secret.

``GUARD`` runs at the start of every process of the commands. It notes each name that is looked up and each address
that is connected to, except Unix sockets and this machine, and refuses it. If the system permits, the processes also
have a network without routes. Its counter of packets without a route covers libraries that are not written in Python.
"""

import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from ragembed.cli import COMMANDS
from tests.embedding_server import status
from tests.network import without_network
from tests.serving.processes import ApiServer, StdioServer

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
TEXTS = {
    "locks.md": "# Locks\n\nThe writer holds the lock of the store.\n",
    "tea.md": "# Tea\n\nGreen tea is brewed at eighty degrees.\n",
    "wings.txt": "Supersonic air flows over a wing.\n",
}
SECRET = "s3cret"
KEY = f"{SECRET}-{SECRET}-{SECRET}"


@pytest.fixture
def guarded(tmp_path, monkeypatch):
    """The command of a watched Python in a folder with documents; the file ``attempts`` gets its connections."""
    (tmp_path / "guard").mkdir()
    (tmp_path / "guard" / "sitecustomize.py").write_text(GUARD)
    (tmp_path / "docs").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / "docs" / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HF_HUB_OFFLINE")  # which would hide an attempt to connect to the hub
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "guard"))
    monkeypatch.setenv("ATTEMPTS", str(tmp_path / "attempts"))
    monkeypatch.setenv("HAS_NO_ROUTE", "1" if without_network() else "")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    return (*without_network(), sys.executable)


def attempts() -> str:
    file = Path("attempts")
    return file.read_text() if file.exists() else ""


def run(python, *commands):
    """Run commands of ragembed in one process; return their output and the lines about failures."""
    lines = "\n".join(json.dumps([str(word) for word in command]) for command in commands)
    done = subprocess.run([*python, "-c", PROGRAM], input=lines, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr, [line for line in done.stderr.splitlines() if line.startswith("exit status")]


def test_no_command_connects(guarded):
    Path("judged.jsonl").write_text('{"query": "who may write", "relevant": ["docs/tea.md"]}\n')
    commands = [
        ("index", "docs"),
        ("query", "who may write"),
        ("context", "who may write"),
        ("query", "who may write", "--why", "docs/tea.md"),
        ("status",),
        ("files", "docs"),
        ("chunks", "docs/tea.md"),
        ("refit",),
        ("doctor", "--repair"),
        ("doctor", "--integrity"),
        ("doctor",),
        ("report", "--out", "report.html"),
        ("models",),
        ("eval", "retrieval", "judged.jsonl"),
        ("collection", "add", "notes", "."),
        ("query", "who may write", "--in", "notes"),
        ("collection", "refit", "notes"),
        ("collection", "remove", "notes"),
        ("status", "--settings"),
        ("delete", "docs/tea.md"),
    ]
    output, failures = run(guarded, *commands)
    assert not [line for line in failures if not line.startswith("exit status 0")], output
    serving = [watch(guarded), serve(guarded), agents(guarded)]
    assert {*(command[0] for command in commands), *serving, "papers"} == set(COMMANDS)
    assert attempts() == ""


@pytest.mark.slow  # it trains models
def test_no_command_of_the_papers_connects(guarded, tiny_model):
    Path("pairs.tsv").write_text("score\tsentence1\tsentence2\n1\ta cat\ta dog\n2\ta cat\tthe cat\n0\ta cat\ta zebra\n")
    Path("collections").mkdir()
    Path("collections/sts13.tsv").write_text(Path("pairs.tsv").read_text())
    Path("words.tsv").write_text("cat\tit sleeps\ncat\tit runs\ndog\tit swims\nbird\tit flies\n")
    train = ("defsent-plus", "--dictionary", "words.tsv", "--model", tiny_model, "--out", "trained", "--device", "cpu")
    b2s = ("b2s", "--corpus", "words.tsv", "--model", tiny_model, "--out", "b2s", "--min-count", 1, "-q")
    commands = (
        ("eval", "sts", "pairs.tsv", "--model", tiny_model),
        ("eval", "describe", "pairs.tsv", "--model", tiny_model),
        ("train", *train, "--held-out", 1, "--steps", 1, "--ica", "none", "--learning-rate", 1e-4, "-q"),
        ("reproduce", "stankevicius2024", "--table", "A2", "--data", "collections", "--column", "RE", "-q"),
        ("train", *b2s),
        ("reverse-dictionary", "trained", "an animal"),
    )
    output, failures = run(guarded, *(("papers", *command) for command in commands))
    assert not [line for line in failures if not line.startswith("exit status 0")], output
    assert attempts() == ""


def watch(python) -> str:
    process = subprocess.Popen(
        [*python, "-m", "ragembed", "index", "--watch", "--poll"], stdout=subprocess.PIPE, text=True
    )
    assert "docs" not in process.stdout.readline()  # the file that was deleted from the store is back
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    return "index"


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


def test_libraries_do_not_report_their_use(monkeypatch):
    code = (
        "import ragembed; from huggingface_hub import constants; from ray._common.usage import usage_lib; "
        "print(constants.HF_HUB_DISABLE_TELEMETRY, usage_lib.usage_stats_enabled())"
    )
    pytest.importorskip("ray")
    for name in ("HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.delenv(name, raising=False)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True False\n", done.stderr


# Secrets

KEYS = ("RAGEMBED_API_KEY", "RAGEMBED_SERVE_TOKEN", "OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY")
REFUSED = (
    ("index", f"https://me:{SECRET}@host/docs"),
    ("index", f"https://{SECRET}@host/docs"),
    ("index", f"https://host/docs?X-Amz-Signature={SECRET}"),
    ("index", f"s3://me:{SECRET}@bucket/docs"),
    ("index", f"https://me:{SECRET}@host/docs::https://host"),
    ("index", f"ftp://me:{SECRET}@host"),
    ("files", f"https://me:{SECRET}@host/docs"),
    ("chunks", f"https://me:{SECRET}@host/docs/a.md"),
    ("index", "--watch", f"https://me:{SECRET}@host/docs"),
    ("delete", f"https://me:{SECRET}@host/docs"),
    ("query", "x", "--why", f"https://me:{SECRET}@host/docs"),
    ("index", "docs", "--model", f"https://me:{SECRET}@host/v1#m"),
    ("index", "docs", "--model", f"https://me:{SECRET}@host/v1"),
    ("index", "docs", "--model", f"https://host/v1?key={SECRET}#m"),
    ("index", "docs", "--model", f"https://me:{SECRET}@host:x/v1#m"),
    ("models", f"https://me:{SECRET}@host/v1#m"),
    ("models", f"https://host/v1?api_key={SECRET}#m"),
    ("papers", "train", "defsent", "--dictionary", f"https://me:{SECRET}@host/words.tsv"),
    ("papers", "eval", "sts", "pairs.tsv", "--model", f"https://me:{SECRET}@host/v1#m"),
    ("index", "docs", "--store", "new", "--engine", "ray", "--address", f"redis://:{SECRET}@host:6379"),
    ("query", "x", "--store", f"https://me:{SECRET}@host/store"),
    ("serve", "--token-file", "weak"),
)


@pytest.fixture
def planted(guarded, monkeypatch):
    """The watched Python in a folder with a store, with secrets in the environment."""
    for name in KEYS:
        monkeypatch.setenv(name, KEY)
    Path("weak").write_text(f"{SECRET}\n")
    Path("pairs.tsv").write_text("score\tsentence1\tsentence2\n1\ta cat\ta dog\n")
    return guarded[-1:]


def no_secret(text):
    assert SECRET not in text
    return text


def test_no_error_shows_a_secret(planted, monkeypatch):
    output, failures = run(
        planted, ("index", "docs", "--extractor", "re:dim=64"), *(("--debug", *one) for one in REFUSED)
    )
    assert [line.split(" [")[0] for line in failures] == ["exit status 0", *["exit status 2"] * len(REFUSED)], output
    no_secret("".join(line for line in output.splitlines() if line not in failures))
    for proxy in (f"gopher://me:{SECRET}@host", f"http://me:{SECRET}@host:x", f"http://{SECRET}@127.0.0.1:9"):
        monkeypatch.setenv("HTTP_PROXY", proxy)
        output, [failure] = run(planted, ("--debug", "index", "docs", "--model", "http://other/v1#m", "--store", "new"))
        assert "exit status 2" in failure, output
        no_secret(output)


@pytest.mark.slow
def test_no_answer_and_no_file_shows_a_secret(planted, embedding_server, monkeypatch):
    for name in KEYS:  # embedding_server clears some of them
        monkeypatch.setenv(name, KEY)
    store = ("index", "docs", "--model", embedding_server.name)
    output, failures = run(
        planted, store, ("status", "--json"), ("query", "tea", "--json"), ("doctor", "--integrity", "--json")
    )
    assert len([line for line in failures if "status 0" in line]) == 4, output
    assert embedding_server.headers["Authorization"] == f"Bearer {KEY}"
    no_secret(output + run(planted, ("--version", "--verbose"), ("models", "--json"))[0])
    agent = StdioServer(Path(), [*planted, "-m", "ragembed", "mcp"])
    with ApiServer(Path(), "--log-queries") as api:
        for fault in (None, status(400, f"the key {KEY} is wrong")):
            embedding_server.always = fault
            told = run(
                planted,
                ("--debug", "query", "hot tea"),
                ("--debug", "index", "docs", "--model", embedding_server.name, "--store", "new"),
            )
            no_secret(told[0])
            no_secret(json.dumps([agent.call("search", query="hot tea"), agent.call("status")]))
            for path in ("/v1/search?query=hot+tea", "/v1/status", "/metrics", "/", "/v1/search?query="):
                no_secret(httpx.get(f"{api.url}{path}", headers={"Authorization": f"Bearer {KEY}"}).text)
                assert httpx.get(f"{api.url}{path}").status_code in (200, 401)
    no_secret("".join(api.log))
    no_secret(b"".join(agent.end()).decode())
    for file in Path(".ragembed").rglob("*"):
        assert file.is_dir() or SECRET.encode() not in file.read_bytes(), file
