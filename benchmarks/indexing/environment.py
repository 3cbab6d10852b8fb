"""The virtual environment of the peers, made as that of ../peer.py is, from requirements that are pinned."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

_BENCHMARKS = Path(__file__).resolve().parent.parent
ENVIRONMENT = _BENCHMARKS / ".venv-index"
PYTHON = ENVIRONMENT / "bin" / "python"
REQUIREMENTS = _BENCHMARKS / "peers" / "index_requirements.txt"


def ensure_environment() -> None:
    """Make the environment, unless it is there and was made from the same files."""
    recipe = "\n".join([sys.version, REQUIREMENTS.read_text(encoding="utf-8")])
    digest = hashlib.sha256(recipe.encode()).hexdigest()
    stamp = ENVIRONMENT / "recipe.sha256"
    if stamp.is_file() and stamp.read_text(encoding="ascii") == digest:
        return
    print(f"making {ENVIRONMENT}: some minutes", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
    (ENVIRONMENT / ".gitignore").write_text("*\n", encoding="ascii")
    install = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "--requirement", str(REQUIREMENTS)], check=True)
    stamp.write_text(digest, encoding="ascii")
