"""SIGKILL at random moments of every command that writes; then the same command again, to its end."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from ragembed.indexes import Store
from ragembed.indexes.storage.layout import is_store
from tests.slow.helpers import CASES, Answers, Case, Cli, answers, content, leftovers, queries, same_answers, scaled

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("needs_minilm")]

ASKED = queries(0, 6)


@pytest.mark.parametrize("name", CASES)
def test_a_killed_command_leaves_a_committed_state_and_the_next_run_finishes(name, tmp_path):
    prepared = Cli(tmp_path / "prepared")
    prepared.folder.mkdir()
    case = CASES[name](prepared)
    rng = np.random.default_rng(list(name.encode()))
    clean: dict[str, Answers] = {}
    seconds = 0.0
    for number in range(scaled(2) + 2):  # two runs that are not killed: the first fills caches, the second is timed
        cli = Cli(tmp_path / f"run-{number}")
        shutil.copytree(prepared.folder, cli.folder)
        started = time.perf_counter()
        with cli.start(*case.arguments) as process:
            if number > 1:
                time.sleep(rng.uniform(0, seconds))
                process.kill()
            errors = process.communicate()[1]
        seconds = max(0.1, time.perf_counter() - started) if number < 2 else seconds
        assert number > 1 or process.returncode == 0, errors
        check_state(cli, case)
        check_next_run(cli, case, clean)
        shutil.rmtree(cli.folder)


def check_state(cli: Cli, case: Case) -> None:
    """The store opens, answers, and is a state that was committed."""
    if not is_store(cli.store):
        assert not case.before
        return
    found = content(cli.store)
    assert case.is_committed(found)
    assert all(answers(cli.store, ASKED[:1], case.modes)) or not any(found.values())
    assert set(cli.problems()) <= set(case.damage)


def check_next_run(cli: Cli, case: Case, clean: dict[str, Answers]) -> None:
    """The same command succeeds, and makes what it makes where nobody kills it."""
    done = cli.run(*case.arguments)
    assert done.returncode == 0 or (done.returncode == 1 and case.may_be_done), done.stderr
    assert content(cli.store) == case.after
    assert cli.problems() == []
    assert leftovers(cli.store) == []
    assert same_answers(answers(cli.store, ASKED), _of_a_clean_store(cli.store, clean))


def _of_a_clean_store(finished: Path, clean: dict[str, Answers]) -> Answers:
    """Return the answers of a store built in one go of the same chunks with the same embedder."""
    with Store.open(finished) as store:
        if store.embedder.fingerprint not in clean:
            path = finished.parent / "clean"
            records = list(store.chunks())
            with Store.create(path, store.embedder) as other, other.writer() as writer:
                writer.stage(record.chunk.embedded_text for record in records)
                writer.commit(chunks=records, sources=list(store.sources().values()))
            clean[store.embedder.fingerprint] = answers(path, ASKED)
            shutil.rmtree(path)
        return clean[store.embedder.fingerprint]
