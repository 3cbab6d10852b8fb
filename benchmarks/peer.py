"""The virtual environment of the programs in ``peers/``, and what is in an environment."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from collection import ROOT

FOLDER = Path(__file__).resolve().parent
ENVIRONMENT = FOLDER / ".venv-peer"
PYTHON = ENVIRONMENT / "bin" / "python"
REQUIREMENTS = FOLDER / "peers" / "requirements.txt"
CONSTRAINTS = ROOT / "constraints.txt"

# langchain-huggingface 1.2.3 wants huggingface-hub < 2, the constraints have a later one.
_LEFT_FREE = ("huggingface_hub",)

_LIST_PACKAGES = """
import json, re
from importlib.metadata import distributions
print(json.dumps({re.sub("[-_.]+", "-", each.name).lower(): each.version for each in distributions()}))
"""


def ensure_environment() -> None:
    """Make the peer's environment, unless it is there and was made from the same files.

    Its packages have the versions of ``constraints.txt`` wherever both sides have them, but for ``_LEFT_FREE``.
    """
    constraints = "".join(
        line
        for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines(keepends=True)
        if not line.startswith(_LEFT_FREE)
    )
    recipe = "\n".join([sys.version, REQUIREMENTS.read_text(encoding="utf-8"), constraints])
    digest = hashlib.sha256(recipe.encode()).hexdigest()
    stamp = ENVIRONMENT / "recipe.sha256"
    if stamp.is_file() and stamp.read_text(encoding="ascii") == digest:
        return
    print(f"making {ENVIRONMENT.relative_to(ROOT)}: some minutes", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
    allowed = ENVIRONMENT / "constraints.txt"
    allowed.write_text(constraints, encoding="utf-8")
    install = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*map(str, install), "--constraint", str(allowed), "--requirement", str(REQUIREMENTS)], check=True)
    stamp.write_text(digest, encoding="ascii")


def packages(python: str | Path) -> dict[str, str]:
    """Return the versions of the packages that the interpreter ``python`` has, by normalised name."""
    listed = subprocess.run(
        [str(python), "-I", "-c", _LIST_PACKAGES], check=True, stdout=subprocess.PIPE, encoding="utf-8"
    )
    versions: dict[str, str] = json.loads(listed.stdout)
    return versions
