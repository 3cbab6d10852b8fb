"""The virtual environments of the peers, made from requirements that are pinned, and what is in an environment."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from collection import ROOT

_BENCHMARKS = Path(__file__).resolve().parent

_LIST_PACKAGES = """
import json, re
from importlib.metadata import distributions
print(json.dumps({re.sub("[-_.]+", "-", each.name).lower(): each.version for each in distributions()}))
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """A folder below this one, the file of its requirements, and the text of its constraints, if there are any."""

    folder: Path
    requirements: Path
    constraints: str | None = None

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.folder / "bin" / "python"

    def ensure(self) -> None:
        """Make the environment, unless it is there and was made by the same Python from the same files."""
        parts = [sys.version, self.requirements.read_text(encoding="utf-8"), self.constraints]
        digest = hashlib.sha256("\n".join(part for part in parts if part is not None).encode()).hexdigest()
        stamp = self.folder / "recipe.sha256"
        if stamp.is_file() and stamp.read_text(encoding="ascii") == digest:
            return
        print(f"making {self.folder}: some minutes", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(self.folder)], check=True)
        (self.folder / ".gitignore").write_text("*\n", encoding="ascii")
        install = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if self.constraints is not None:
            allowed = self.folder / "constraints.txt"
            allowed.write_text(self.constraints, encoding="utf-8")
            install += ["--constraint", str(allowed)]
        subprocess.run([*install, "--requirement", str(self.requirements)], check=True)
        stamp.write_text(digest, encoding="ascii")


def packages(python: str | Path) -> dict[str, str]:
    """Return the versions of the packages that the interpreter ``python`` has, by normalised name."""
    listed = subprocess.run(
        [str(python), "-I", "-c", _LIST_PACKAGES], check=True, stdout=subprocess.PIPE, encoding="utf-8"
    )
    versions: dict[str, str] = json.loads(listed.stdout)
    return versions


def _constraints(*without: str) -> str:
    """Return ``constraints.txt`` without what a peer wants otherwise."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if line.partition("==")[0] not in without)


LANGCHAIN = Environment(
    _BENCHMARKS / ".venv-peer", _BENCHMARKS / "peers" / "requirements.txt", _constraints("huggingface_hub")
)
"""LangChain with its FAISS store; what it shares with ragembed has the versions of ``constraints.txt``.

langchain-huggingface 1.2.3 wants huggingface_hub < 2.
"""

SPEED = Environment(_BENCHMARKS / ".venv-speed", _BENCHMARKS / "peers" / "speed_requirements.txt", _constraints())
"""What single paths are compared with: model2vec, bm25s, txtai."""

INDEXES = Environment(_BENCHMARKS / ".venv-index", _BENCHMARKS / "peers" / "index_requirements.txt")
"""Libraries for vector indexes."""

RUNTIMES = Environment(
    _BENCHMARKS / ".venv-runtimes", _BENCHMARKS / "peers" / "runtime_requirements.txt", _constraints()
)
"""What else runs a model on a CPU: torch.compile, ONNX Runtime, OpenVINO."""
