import subprocess
import sys
import tempfile

import pytest

import ragembed.evaluation

HEAVY = {"numpy", "scipy", "sklearn", "torch", "transformers", "faiss"}


def loaded(code):
    # Run outside of the repository, whose folder ragembed/ would hide the installed package.
    show = "import sys; print(*{name.split('.')[0] for name in sys.modules})"
    command = [sys.executable, "-c", f"{code}\n{show}"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tempfile.gettempdir())
    return set(run.stdout.split())


def test_import_is_light():
    assert loaded("import ragembed.evaluation").isdisjoint(HEAVY)


def test_retrieval_and_readers_need_only_numpy():
    code = "from ragembed.evaluation import paired_bootstrap, read_beir, score_rankings, search, uniformity"
    assert loaded(code) & HEAVY == {"numpy"}


def test_every_public_name_exists():
    for name in ragembed.evaluation.__all__:
        assert getattr(ragembed.evaluation, name) is not None


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = ragembed.evaluation.no_such_name
