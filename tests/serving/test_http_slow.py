"""The HTTP API under load while another process writes, and under generated requests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time

import httpx
import pytest

from tests.serving.processes import ApiServer

SCALE = int(os.environ.get("RAGEMBED_SLOW_SCALE", "1"))
CLIENTS = 16

pytestmark = pytest.mark.slow


def test_sixteen_clients_see_whole_generations_while_documents_change(folder):
    """One thread replaces 20 documents at once, again and again, and another process indexes files."""
    stop, failures, answered = threading.Event(), [], [0] * CLIENTS

    def search(number: int, url: str) -> None:
        with httpx.Client(base_url=url, timeout=60) as client:
            while not stop.is_set():
                params = {"q": "zebra giraffe", "k": 20, "where": "version >= 0", "dedupe": False}
                answer = client.get("/v1/search", params=params)
                results = answer.json().get("results", [])
                versions = {result["metadata"]["version"] for result in results}
                if answer.status_code != 200 or len(results) != 20 or len(versions) != 1:
                    failures.append((answer.status_code, len(results), versions))
                answered[number] += 1

    def write(url: str) -> None:
        version = 0
        with httpx.Client(base_url=url, timeout=60) as client:
            while not stop.is_set():
                version += 1
                answer = push(client, version)
                if answer.status_code not in (200, 503):  # 503: the other process writes for longer than the limit
                    failures.append(answer.text)

    def push(client: httpx.Client, version: int) -> httpx.Response:
        documents = [
            {"id": f"d{n}", "text": f"zebra giraffe {n} {version}", "metadata": {"version": version}} for n in range(20)
        ]
        return client.post("/v1/documents", json={"documents": documents})

    with ApiServer(folder, "--writable", "--queue", "100", "--no-access-log") as running:
        with httpx.Client(base_url=running.url, timeout=60) as client:
            assert push(client, 0).status_code == 200
        threads = [threading.Thread(target=search, args=[n, running.url]) for n in range(CLIENTS)]
        threads.append(threading.Thread(target=write, args=[running.url]))
        for thread in threads:
            thread.start()
        end, runs = time.monotonic() + 60 * SCALE, 0
        while time.monotonic() < end:
            runs += 1
            (folder / f"docs/new{runs % 5}.md").write_text(f"# Run {runs}\n\nA writer holds lock {runs}.\n" * 20)
            command = [sys.executable, "-m", "ragembed", "index", "docs", "-q", "--wait"]
            subprocess.run(command, check=True, cwd=folder)
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert min(answered) > 0


def test_generated_requests_cause_no_server_error(folder):
    program = shutil.which("schemathesis")
    if program is None:
        pytest.skip("no schemathesis: pip install schemathesis==4.32.5")
    checks = "not_a_server_error,response_schema_conformance,content_type_conformance,status_code_conformance"
    with ApiServer(folder, "--writable", "--no-access-log", "--timeout", "300") as running:
        command = [program, "run", f"{running.url}/openapi.json", "--checks", checks, "--max-time", str(300 * SCALE)]
        options = ["--request-timeout", "300", "--continue-on-failure", "--no-color"]
        run = subprocess.run([*command, *options], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-5000:]
