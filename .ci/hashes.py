"""Hashes of the packages for development and continuous integration.

``hashes.py`` writes ``hashes.txt``: the hashes of all files of the versions in constraints.txt that run on Linux and
x86-64, as the package index states them. ``hashes.py REPORT...`` compares them with what pip has installed, given its
reports. Not compared are files of this machine, such as a wheel in a folder, those for other systems, and packages that
constraints.txt does not name.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from urllib.parse import unquote, urlsplit

FOLDER = Path(__file__).resolve().parent
RECORDED = FOLDER / "hashes.txt"
INDEX = "https://pypi.org/simple/{}/"
FORMAT = "application/vnd.pypi.simple.v1+json"
PYTHONS = ("py3", "py2.py3", "cp310", "cp311", "cp312", "cp313")


def is_recorded(file: str) -> bool:
    """Return whether a file runs on Linux and x86-64 with a Python that ragembed supports."""
    if not file.endswith(".whl"):
        return file.endswith((".tar.gz", ".zip"))
    python, abi, platform = file.removesuffix(".whl").split("-")[-3:]
    runs = platform == "any" or ("manylinux" in platform and "x86_64" in platform)
    return runs and (python in PYTHONS or abi == "abi3")


def write() -> None:
    """Write the hashes of all packages in constraints.txt."""
    lines = []
    for line in (FOLDER.parent / "constraints.txt").read_text(encoding="utf-8").splitlines():
        name, _, version = line.partition("#")[0].partition(";")[0].strip().partition("==")
        if not name:
            continue
        request = urllib.request.Request(INDEX.format(name), headers={"Accept": FORMAT})
        with urllib.request.urlopen(request, timeout=60) as stream:
            files = json.load(stream)["files"]
        of_version = [
            file for file in files if f"-{version}-" in file["filename"] or f"-{version}." in file["filename"]
        ]
        found = {file["filename"]: file["hashes"]["sha256"] for file in of_version if is_recorded(file["filename"])}
        if not found:
            sys.exit(f"{INDEX.format(name)} has no file of version {version}: correct constraints.txt")
        lines += [f"{digest}  {file}\n" for file, digest in sorted(found.items())]
    RECORDED.write_text("".join(lines), encoding="utf-8")


def compare(reports: list[str]) -> None:
    """Exit with a message for each installed file whose hash is not the recorded one."""
    recorded = dict(reversed(line.split()) for line in RECORDED.read_text(encoding="utf-8").splitlines())
    projects = {file.split("-")[0] for file in recorded}
    wrong = []
    for report in reports:
        for item in json.loads(Path(report).read_text(encoding="utf-8"))["install"]:
            info = item["download_info"]
            url = urlsplit(info["url"])
            file = unquote(url.path.rpartition("/")[2])
            if url.scheme != "https" or not is_recorded(file) or file.split("-")[0] not in projects:
                continue
            digest = info["archive_info"]["hashes"]["sha256"]
            if recorded.get(file) != digest:
                wrong.append(f"{file} has the hash {digest}: expected {recorded.get(file, 'a file in .ci/hashes.txt')}")
    if wrong:
        sys.exit("\n".join([*wrong, "if constraints.txt has changed, run 'make hashes'; else delete the environment"]))


if __name__ == "__main__":
    compare(sys.argv[1:]) if sys.argv[1:] else write()
