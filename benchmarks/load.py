"""Load and damaged files: what the slow tests measure while they check that nothing is lost and nothing grows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

from data import Setting
from processes import ROOT
from report import table
from speed import Outcome

LOAD = {
    "test_readers_beside_a_writer_see_whole_generations[processes]": "reads of 8 processes beside a writer",
    "test_readers_beside_a_writer_see_whole_generations[threads]": "reads of 8 threads beside a writer",
    "test_opening_and_closing": "opens and closes",
    "test_searching": "searches",
    "test_forking_after_opening": "forks of a process with an open store",
    "test_searching_in_threads_while_refitting": "searches of 8 threads during a refit",
}


def load(setting: Setting) -> Outcome:
    """Run the tests of load and leaks, and give every reader random and damaged files."""
    scale = setting.choose(1.0, 0.1)
    found = _tested(["test_soak.py", "test_leaks.py"], scale, setting.folder)
    rows = [
        [what, *(found[name].get(key, "–") for key in ("times", "open files", "memory, MB"))]
        for name, what in LOAD.items()
    ]
    files = sum(int(each["files"]) for each in _tested(["test_fuzz_readers.py"], scale, setting.folder).values())
    about = (
        "Every answer is checked, and no error occurred. Growth is that of one process, after a first part of the work "
        "has filled its caches; beside a writer, that of the reader that grew most. The writer adds, deletes, refits, "
        f"optimizes and copies. Each of {files:,} random and damaged files ended in documents or a clear error of its "
        "reader, within 10 seconds of processor time and 500 MB."
    )
    return Outcome([about, table(("", "times", "open files", "memory, MB"), rows)])


def _tested(files: list[str], scale: float, folder: Path) -> dict[str, dict[str, str]]:
    """Run slow tests; return what each has recorded by its name."""
    report = folder / f"{files[0]}.xml"
    options = ("-m", "slow", "--numprocesses", "0", "--junitxml", report, "-o", "junit_family=xunit1", "--quiet")
    program = Path(sys.executable).with_name("pytest")
    tests = [ROOT / "tests" / "slow" / file for file in files]
    environment = {**os.environ, "RAGEMBED_SLOW_SCALE": str(scale)}
    subprocess.run([program, *options, *tests], cwd=ROOT, env=environment, check=True, stdout=sys.stderr)
    return {
        str(case.get("name")): {str(each.get("name")): str(each.get("value")) for each in case.iter("property")}
        for case in ET.parse(report).iter("testcase")  # written by pytest just now
    }
