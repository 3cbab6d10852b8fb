"""What a user has to know: the extras, the commands, and the help of index."""

import re
from pathlib import Path

import pytest

from ragembed import EmbedderConfig, extras
from ragembed.cli import COMMANDS
from ragembed.cli.commands.index import UNLISTED
from ragembed.cli.commands.index import command as index
from ragembed.cli.project import NEVER_SET, parameters
from ragembed.errors import MissingExtraError
from ragembed.reports.store_report import report

ROOT = Path(__file__).resolve().parents[1]


def loaded(name):
    tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
    return tomllib.loads((ROOT / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def declared():
    found = loaded("pyproject.toml")["project"]
    return {"": found["dependencies"], **found["optional-dependencies"]}


def test_there_are_at_most_12_extras_and_the_page_lists_them(declared):
    names = declared.keys() - {""}
    assert len(names) <= 12
    page = (ROOT / "docs/how-to/install.md").read_text(encoding="utf-8")
    rows = "".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))
    assert names - {"dev"} <= set(re.findall(r"`([a-z]+)`", rows))


def test_each_optional_package_is_in_the_extra_that_its_error_names(declared):
    for package, extra in extras._EXTRAS.values():
        assert any(re.match(rf"{package}\b", line) for line in declared[extra]), package


def test_a_report_names_all_that_it_needs_which_is_not_pytorch(declared, monkeypatch):
    monkeypatch.setattr(extras, "is_installed", lambda module: module == "scipy")
    with pytest.raises(MissingExtraError, match=r"a report needs the packages openTSNE, scikit-learn, which .*papers"):
        report(None)
    assert [line for line in declared["papers"] if "torch" in line] == []


def test_all_has_every_extra_but_one_of_the_two_builds_of_faiss(declared):
    [nested] = [line for line in declared["all"] if line.startswith("ragembed[")]
    assert set(nested[9:-1].split(",")) == declared.keys() - {"", "all", "dev", "gpu"}


def test_uv_installs_the_same_versions_as_make():
    packages = loaded("uv.lock")["package"]
    locked = {(package["name"], package.get("version")) for package in packages}
    lines = re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    pinned = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in lines}
    assert {name for name, _ in locked} > pinned.keys()
    assert {(name, version) for name, version in locked if pinned.get(name, version) != version} == set()
    assert {package["source"].get("registry", "https://pypi.org/simple") for package in packages} == {
        "https://pypi.org/simple"
    }


@pytest.mark.parametrize("package", ["pypdfium2", "snowballstemmer"])
def test_pdf_files_and_word_endings_need_no_extra(declared, package):
    assert any(line.startswith(package) for line in declared[""])


def test_there_are_at_most_16_commands(cli):
    listed = re.findall(r"^  ([a-z-]+)  ", cli("--help").stdout.partition("Commands:")[2], re.MULTILINE)
    assert listed == list(COMMANDS)
    assert len(COMMANDS) <= 16


def test_search_is_an_alias_of_query(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "lock.md").write_text("Only one process writes.\n")
    cli("index", "docs", "--preset", "re", "-q")
    Path("ragembed.toml").write_text('[query]\nmode = "lexical"\n')
    assert cli("search", "process", "--json").stdout == cli("query", "process", "--json").stdout
    assert "  search" not in cli("--help").stdout


def test_help_of_index_has_at_most_80_lines_and_names_every_option(cli):
    shown = cli("index", "--help").stdout
    assert len(shown.splitlines()) <= 80
    assert max(map(len, shown.splitlines())) <= 80
    for option in (name for parameter in index.params for name in parameter.opts if name.startswith("--")):
        assert re.search(rf"{option}\b", shown), option


def test_a_file_can_set_what_the_help_of_index_only_names():
    names = {str(parameter.name) for parameter in parameters(index).values()}
    assert names >= UNLISTED
    assert {name for name in UNLISTED if name in NEVER_SET} <= EmbedderConfig().to_dict().keys()
