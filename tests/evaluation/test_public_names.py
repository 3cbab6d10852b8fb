import subprocess
import sys
import tempfile

import pytest

import ragembed.evaluation
import ragembed.papers
import ragembed.papers.training

HEAVY = {"numpy", "scipy", "sklearn", "torch", "transformers", "faiss"}


def loaded(code):
    # Run outside of the repository, whose folder ragembed/ would hide the installed package.
    show = "import sys; print(*{name.split('.')[0] for name in sys.modules})"
    command = [sys.executable, "-c", f"{code}\n{show}"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tempfile.gettempdir())
    return set(run.stdout.split())


PACKAGES = (ragembed.evaluation, ragembed.papers, ragembed.papers.training)


def test_retrieval_and_readers_need_only_numpy():
    code = "from ragembed.evaluation import paired_bootstrap, read_beir, score_rankings, search"
    assert loaded(code) & HEAVY == {"numpy"}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_exists(package):
    for name in package.__all__:
        assert getattr(package, name) is not None


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = ragembed.evaluation.no_such_name
