"""Every command that writes, on a disk that becomes full at some moment, and on a read-only one.

The disk is a small tmpfs, which only root can mount.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragembed.cli import ERROR_EXIT
from ragembed.indexes.storage.layout import is_store
from tests.slow.helpers import CASES, Cli, answers, content, index_after_edits, leftovers, queries, same_answers, scaled

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("needs_minilm")]

COMMANDS = ("index", "index after edits", "delete PATH", "delete --where", "refit", "optimize")
PAGE = 4096


def mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 MiB."""
    if not hasattr(os, "geteuid") or os.geteuid() or shutil.which("mount") is None:
        pytest.skip("only root mounts disks")
    folder = tmp_path / "disk"
    folder.mkdir()
    if (mounted := mount("-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder))).returncode:
        pytest.skip(f"no disk can be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # a process that was killed may still be ending


@pytest.mark.parametrize("name", COMMANDS)
def test_on_a_full_disk_the_former_state_stays_and_the_next_run_finishes(name, disk, tmp_path):
    prepared, cli = Cli(tmp_path / "prepared"), Cli(disk / "work")
    prepared.folder.mkdir()
    case = CASES[name](prepared)
    before = answers(prepared.store, queries(0, 3)) if case.before else []
    needs = len(case.after) * PAGE + sum(file.stat().st_size for file in prepared.folder.rglob("*") if file.is_file())
    levels, full = scaled(4), 0
    for level in range(levels):
        for entry in disk.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        shutil.copytree(prepared.folder, cli.folder)
        fill(disk, needs * level // levels)
        done = cli.run(*case.arguments)
        (disk / "filler").unlink()
        if done.returncode:
            full += 1
            errors = done.stderr.strip().splitlines()
            assert done.returncode == ERROR_EXIT
            assert [line for line in errors if line.startswith("Error: ")] == errors[-1:]
            check_is_intact(cli, case, before)
        again = cli.run(*case.arguments)
        assert again.returncode == 0 or (again.returncode == 1 and case.may_be_done), again.stderr
        assert content(cli.store) == case.after
        assert cli.problems() == []
        assert leftovers(cli.store) == []
    assert full


def check_is_intact(cli, case, before):
    if not is_store(cli.store):
        assert not case.before
        return
    found = content(cli.store)
    assert case.is_committed(found)
    assert cli.problems() == []
    if found == case.before and case.at_once and case.before != case.after:
        assert same_answers(answers(cli.store, queries(0, 3)), before)


def fill(folder: Path, free: int) -> None:
    """Write a file that leaves ``free`` bytes, in whole pages, on the disk."""
    status = os.statvfs(folder)
    size = status.f_bavail * status.f_frsize - free // PAGE * PAGE
    with (folder / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(size, 1))


def test_a_store_on_a_read_only_disk_is_read(disk):
    cli = Cli(disk / "work")
    cli.folder.mkdir()
    case = index_after_edits(cli)
    [asked] = queries(0, 1)
    before = cli.must("query", asked, "--json")
    assert mount("-o", "remount,ro", str(disk)).returncode == 0
    assert cli.must("query", asked, "--json") == before
    cli.must("doctor", "--integrity")
    for arguments in (case.arguments, ("delete", "docs"), ("doctor", "--repair")):
        done = cli.run(*arguments)
        assert (done.returncode, len(done.stderr.strip().splitlines())) == (ERROR_EXIT, 1), done.stderr
