"""Collections and ``ragembed.toml`` on the command line."""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ragembed
from ragembed import EmbedderConfig
from ragembed.config import settings_files
from ragembed.config.settings_files import confirm_model, find_project, registry_file

TEXTS = {"notes": {"tea.md": "# Tea\n\nGreen tea with milk.\n"}, "work": {"lock.md": "# Lock\n\nThe writer holds.\n"}}


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture(scope="module")
def _folders(tmp_path_factory, tiny_model):
    made = tmp_path_factory.mktemp("folders")
    for name, files in TEXTS.items():
        (made / name).mkdir()
        for file, text in files.items():
            (made / name / file).write_text(text)
        config = EmbedderConfig(extractor="re:dim=16", model=str(tiny_model))
        ragembed.index(made / name, store=made / name / ".ragembed", embedder=config)
    return made


@pytest.fixture
def folders(_folders, in_folder, tiny_model):
    """Two indexed folders in the working directory."""
    confirm_model(str(tiny_model))
    return shutil.copytree(_folders, in_folder, dirs_exist_ok=True)


def named(result):
    return [(hit["store"], hit["path"]) for hit in json.loads(result.stdout)["results"]]


def test_stores_are_named_searched_and_removed(folders, cli):
    assert cli("collection", "list").stderr.startswith("no collections: add one with")
    assert cli("collection", "add", "mine", "notes", "--store", "office=work/.ragembed").stdout.startswith(
        "mine: 2 stores, in "
    )
    found = named(cli("query", "tea writer", "--in", "mine", "--json"))
    assert sorted(found) == [("notes", "notes/tea.md"), ("office", "work/lock.md")]
    shown = cli("query", "milk", "--in", "all", "-k", "1").stdout
    assert "notes/tea.md:1-3" in shown
    assert ", in notes)" in shown
    listed = json.loads(cli("collection", "list", "--json").stdout)["collections"]
    assert [(store["name"], store["chunks"]) for store in listed[0]["stores"]] == [("notes", 1), ("office", 1)]
    cli("collection", "remove", "mine", "office")
    assert named(cli("query", "writer", "--in", "mine", "--json")) == [("notes", "notes/tea.md")]
    cli("collection", "remove", "mine")
    assert "no collection is called 'mine'" in cli("query", "writer", "--in", "mine", exit_code=2).stderr
    assert Path("notes/.ragembed/store.db").exists()


def test_other_commands_read_collections(folders, cli):
    cli("collection", "add", "mine", "notes", "work")
    assert "work/lock.md:1-3" in cli("context", "writer", "--in", "mine").stdout
    assert "work/lock.md: rank 1" in cli("query", "the writer", "--why", "work/lock.md", "--in", "mine").stdout
    assert "is in none of the stores" in cli("query", "writer", "--why", "else.md", "--in", "mine", exit_code=2).stderr
    explained = json.loads(cli("query", "writer", "--in", "mine", "--explain", "--json").stdout)["results"]
    assert all(hit["explanation"]["terms"] for hit in explained)
    status = json.loads(cli("status", "--in", "mine", "--json").stdout)["stores"]
    assert [(store["name"], store["chunks"]) for store in status] == [("notes", 1), ("work", 1)]
    assert cli("status", "--in", "mine", "--drift").stdout.startswith("notes, work:\nverdict")
    [drift] = json.loads(cli("status", "--in", "mine", "--drift", "--json").stdout)["groups"]
    assert (drift["stores"], drift["vectors"], drift["verdict"]) == (["notes", "work"], 2, "keep")
    assert cli("doctor", "--integrity", "--in", "mine").stdout.count("no damage found") == 2
    assert "nothing to fit" in cli("collection", "refit", "mine").stdout
    assert "give one of them" in cli("query", "x", "--in", "mine", "--store", "notes/.ragembed", exit_code=2).stderr


def test_servers_get_the_stores_of_collections(folders, cli):
    cli("collection", "add", "mine", "notes", "work")
    config = json.loads(cli("mcp", "--in", "mine", "--store", "more=elsewhere", "--print-config", "claude").stdout)
    arguments = config["mcpServers"]["ragembed"]["args"]
    assert [each.partition("=")[0] for each in arguments if "=" in each] == ["notes", "work", "more"]
    taken = cli("mcp", "--in", "mine", "--store", "notes=elsewhere", "--print-config", "claude", exit_code=2)
    assert "two stores have the name 'notes'" in taken.stderr


def test_evaluation_searches_collections(folders, cli):
    cli("collection", "add", "mine", "notes", "work")
    lines = [
        {"query": "the writer", "relevant": ["work/lock.md"]},
        {"query": "green milk", "relevant": ["notes/tea.md"]},
    ]
    Path("judged.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ("eval", "retrieval", "judged.jsonl", "--in", "mine", "--mode", "lexical", "--measures", "recall@1")
    [line] = cli(*command, "--format", "jsonl").stdout.splitlines()
    assert (json.loads(line)["recall@1"], json.loads(line)["store"]) == (100.0, "mine")
    assert "give one of them" in cli(*command, "--store", "x", exit_code=2).stderr


def test_a_store_that_is_missing_or_damaged_is_reported(folders, cli):
    cli("collection", "add", "mine", "notes", "work")
    shutil.rmtree("work/.ragembed")
    result = cli("query", "tea", "--in", "mine")
    assert "notes/tea.md" in result.stdout
    assert result.stderr.startswith("note: the store work is left out: no store at ")
    assert "work/.ragembed: no store at " in cli("collection", "list").stdout
    assert "error: no store at " in cli("doctor", "--integrity", "--in", "mine", exit_code=2).stdout
    shutil.rmtree("notes/.ragembed")
    assert "no store at" in cli("query", "tea", "--in", "mine", exit_code=2).stderr


def test_different_embedders_are_reported(folders, cli, tiny_model):
    shutil.rmtree("work/.ragembed")
    cli("index", "work", "--store", "work/.ragembed", "--extractor", "re:dim=8", "--model", tiny_model, "-q")
    cli("collection", "add", "mine", "notes", "work")
    result = cli("query", "writer tea", "--in", "mine")
    assert "different embedders, so results are ordered by their rank among those of notes; work" in result.stderr
    assert "ordered by" not in cli("query", "writer tea", "--in", "mine", "--mode", "lexical").stderr
    assert "different models or settings" in cli("collection", "refit", "mine", exit_code=2).stderr


def test_the_default_collection_is_searched_where_no_store_is_found(folders, cli, monkeypatch):
    cli("collection", "add", "mine", "notes")
    assert cli("collection", "default").stdout == "none\n"
    assert "no store at" in cli("query", "tea", exit_code=2).stderr
    cli("collection", "default", "mine")
    assert named(cli("query", "tea", "--json")) == [("notes", "notes/tea.md")]
    assert cli("collection", "list").stdout.startswith("mine (default)\n")
    monkeypatch.chdir("work")
    assert "store" not in json.loads(cli("query", "tea writer", "--json").stdout)["results"][0]
    monkeypatch.chdir("..")
    cli("collection", "remove", "mine")
    assert cli("collection", "default").stdout == "none\n"
    assert "no collection is called 'x'" in cli("collection", "default", "x", exit_code=2).stderr


def test_the_file_of_collections_is_edited_and_not_replaced(folders, cli):
    cli("collection", "add", "mine", "notes")
    text = registry_file().read_text() + "\n# my remark\n[collections.mine.query]\nk = 1  # few\nmode = 'lexical'\n"
    registry_file().write_text(text)
    cli("collection", "add", "other", "work")
    assert "# my remark" in registry_file().read_text()
    assert "k = 1  # few" in registry_file().read_text()
    cli("collection", "add", "mine", "work")
    answer = json.loads(cli("query", "tea writer", "--in", "mine", "--json").stdout)
    assert (len(answer["results"]), answer["mode"]) == (1, "lexical")
    answer = json.loads(cli("query", "tea writer", "--in", "mine", "-k", "9", "--json").stdout)
    assert (len(answer["results"]), answer["mode"]) == (2, "lexical")
    assert [path.name for path in registry_file().parent.iterdir() if path.name.endswith(".tmp")] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[collections.mine.stores\n", "is not valid TOML"),
        ("[collections.mine.stores]\na = 1\n", "a = 1 in [collections.mine.stores]: expected a name and the path"),
        ("[collections.'a b'.stores]\n", "'a b' is not a name"),
        ("[collections.all.stores]\n", "'all' is not a name"),
        ("[collections.mine]\nstore = 'x'\n", "unknown key 'store' in [collections.mine]"),
        ("collections = 3\n", "collections is '3': expected a table"),
        (b"\xff", "it is not UTF-8"),
    ],
)
def test_a_damaged_file_of_collections_is_an_error_and_stays(folders, cli, text, message):
    registry_file().parent.mkdir(parents=True, exist_ok=True)
    registry_file().write_bytes(text if isinstance(text, bytes) else text.encode())
    before = registry_file().read_bytes()
    for command in (("query", "x", "--in", "mine"), ("collection", "add", "mine", "notes"), ("collection", "list")):
        assert message in cli(*command, exit_code=2).stderr
    assert registry_file().read_bytes() == before


def test_an_interrupted_write_leaves_the_file_of_collections(folders, cli, monkeypatch):
    cli("collection", "add", "mine", "notes")
    before = registry_file().read_bytes()

    def full(path, data):
        registry_file().with_name(".collections.toml.1.tmp").write_bytes(data[:9])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(settings_files, "replace_file", full)
        assert "No space left on device" in cli("collection", "add", "other", "work", exit_code=2).stderr
    assert registry_file().read_bytes() == before
    cli("collection", "add", "other", "work")
    assert set(settings_files.read_registry().collections) == {"mine", "other"}


def test_processes_that_add_stores_at_the_same_time_wait_for_each_other(tmp_path):
    names = [f"c{i}" for i in range(8)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: settings_files.add_stores(name, {"a": tmp_path / name}), names))
    assert set(settings_files.read_registry().collections) == set(names)


def test_a_linked_file_of_collections_stays_a_link(tmp_path):
    registry_file().parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "dotfiles.toml").write_text("# mine\n")
    registry_file().symlink_to(tmp_path / "dotfiles.toml")
    settings_files.add_stores("mine", {"a": tmp_path / "a"})
    assert registry_file().is_symlink()
    assert (tmp_path / "dotfiles.toml").read_text().startswith("# mine\n")


def test_wrong_names_and_stores_are_errors(folders, cli):
    assert "nothing to add" in cli("collection", "add", "mine", exit_code=2).stderr
    assert "no store at" in cli("collection", "add", "mine", ".", exit_code=2).stderr
    assert "is not a name" in cli("collection", "add", "a b", "notes", exit_code=2).stderr
    assert not registry_file().exists()
    cli("collection", "add", "mine", "notes")
    shutil.copytree("notes", "other/notes")
    assert "has another store called 'notes'" in cli("collection", "add", "mine", "other/notes", exit_code=2).stderr
    cli("collection", "add", "second", "other/notes")
    assert {store for store, _ in named(cli("query", "tea", "--in", "mine,second", "--no-dedupe", "--json"))} == {
        "notes",
        "second/notes",
    }


# ragembed.toml


@pytest.fixture
def project(in_folder):
    """Write ``ragembed.toml`` in the working directory, which has a folder ``docs``."""
    Path("docs").mkdir()
    for name, text in (("tea.md", "Green tea."), ("lock.md", "A lock."), ("tmp.md", "Tea, tea.")):
        Path("docs", name).write_text(text)

    def write(text):
        Path("ragembed.toml").write_text(text)

    return write


def test_a_project_sets_store_and_options(project, cli, tiny_model, monkeypatch):
    cli("index", "docs", "--extractor", "re:dim=16", "--model", tiny_model, "--store", "elsewhere", "-q")
    project(
        f"""
        store = "made/store"
        [index]
        paths = ["docs"]
        exclude = ["tmp*"]
        extractor = "re:dim=16"
        model = "{tiny_model}"
        hidden = true
        [query]
        k = 1
        mode = "lexical"
        """
    )
    cli("index", "-q")
    assert json.loads(cli("status", "--store", "made/store", "--json").stdout)["indexing"]["options"]["hidden"] is True
    Path("deep/er").mkdir(parents=True)
    monkeypatch.chdir("deep/er")
    answer = json.loads(cli("query", "tea lock", "--json").stdout)
    assert (answer["mode"], len(answer["results"])) == ("lexical", 1)
    answer = json.loads(cli("query", "tea lock", "-k", "5", "--mode", "dense", "--json").stdout)
    assert (answer["mode"], len(answer["results"])) == ("dense", 2)
    found = {
        (each["command"], each["name"]): (each["value"], Path(each["origin"]).name)
        for each in json.loads(cli("status", "--settings", "set", "--json").stdout)["settings"]
    }
    assert found["query", "k"] == ("1", "ragembed.toml")
    assert found["index", "hidden"] == (True, "ragembed.toml")
    assert found[None, "store"][1] == "ragembed.toml"
    monkeypatch.setenv("RAGEMBED_STORE", "/none")
    assert "store" in cli("status", "--settings", "set").stdout
    assert "$RAGEMBED_STORE" in cli("status", "--settings").stdout
    monkeypatch.delenv("RAGEMBED_STORE")
    shown = cli("status", "--settings").stdout.splitlines()
    assert {"query.rerank-depth           50  (default)", "query.per-file               no limit  (default)"} < {*shown}
    assert {"query.alpha                  0.6  (default)", "index.layers                 last  (default)"} < {*shown}
    assert "index.weighting              idf:0.25  (store)" in shown
    assert not [line for line in shown if "–" in line]


def test_a_project_defines_collections_for_a_team(folders, cli):
    Path("ragembed.toml").write_text(
        'default = "team"\n[collections.team.stores]\nnotes = "notes/.ragembed"\nwork = "work/.ragembed"\n'
        "[collections.team.query]\nk = 1\n"
    )
    assert len(named(cli("query", "tea writer", "--json"))) == 1
    assert len(named(cli("query", "tea writer", "--in", "team", "-k", "4", "--json"))) == 2
    shown = cli("status", "--settings", "set").stdout
    assert "collection                   team" in shown
    assert "query.k                      1" in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('store = "../other"', "outside of the folder"),
        ('store = "link/x"', "outside of the folder"),
        ("store = 1", "store is 1: expected the path"),
        ('[index]\npaths = [".."]', "paths in [index] is '..', outside"),
        ('[index]\npaths = ["https://example.org/x"]', "is the URL"),
        ('[index]\nmodel = "evil/model"', "you have not used before"),
        ('[index]\nmodel = "http://evil.example/v1#m"', "you have not used before"),
        ("[index]\ntrust-remote-code = true", "cannot be set in a file: code of a model runs only"),
        ('[index]\nconfig = "docs/x.toml"', "cannot be set in a file: it could name any model"),
        ('[index]\nrevision = "refs/pr/1"', "cannot be set in a file: it could choose another model"),
        ('[index]\naddress = "10.0.0.1:6379"', "cannot be set in a file: it names another machine"),
        ("[index]\nworkers = 2", "cannot be set in a file: it adds to your collections"),
        ('[index]\npostprocess-corpus = "../x"', "outside of the folder"),
        ("[index]\nexcluded = []", "'excluded' in [index] is unknown: did you mean 'exclude'?"),
        ("[index]\nhidden = 'yes'", "'hidden' in [index] is 'yes': expected true or false"),
        ("[index]\nmax-size = 'much'", "'max-size' in [index]: 'much' is not a size"),
        ("[index]\noverlap = [1]", "expected a text or a number"),
        ("index = 1", "index is 1: expected a table"),
        ('default = "all"', "default is 'all': expected a collection of this file"),
        ('[collections.x.stores]\na = "../.."', "the store a in [collections.x.stores]"),
    ],
)
def test_a_project_from_a_stranger_cannot_reach_outside(project, cli, text, message, tmp_path):
    Path("link").symlink_to(tmp_path.parent)
    project(text)
    assert message in cli("index", exit_code=2).stderr
    assert not Path(".ragembed").exists()


def test_a_rerank_model_of_a_project_must_be_known(project, cli):
    project('[query]\nrerank = "evil/model"')
    assert "ragembed query TEXT --rerank evil/model' once" in cli("query", "x", exit_code=2).stderr
    project('[collections.c.stores]\na = "a"\n[collections.c.query]\nrerank = "evil/model"')
    assert "you have not used before" in cli("query", "x", "--in", "c", exit_code=2).stderr


def test_a_project_cannot_search_collections_of_the_user(folders, cli):
    cli("collection", "add", "mine", "notes")
    for names in ("mine", "all"):
        Path("ragembed.toml").write_text(f'[query]\nin = "{names}"\n')
        assert f"names '{names}': expected a collection of this file" in cli("query", "tea", exit_code=2).stderr
    Path("ragembed.toml").write_text('[query]\nin = "team"\n[collections.team.stores]\nwork = "work/.ragembed"\n')
    assert named(cli("query", "tea", "--json")) == [("work", "work/lock.md")]
    assert named(cli("query", "tea", "--in", "mine", "--json")) == [("notes", "notes/tea.md")]


def test_help_does_not_read_a_project(project, cli):
    project("[index")
    assert "Usage:" in cli("index", "--help").stdout
    assert "Usage:" in cli("query", "-h").stdout


@pytest.mark.skipif(os.name == "nt", reason="needs links and pipes")
@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("link", "it is a symbolic link or below one, and links are not followed"),
        ("device", "it is a symbolic link or below one, and links are not followed"),
        ("pipe", "it is not a regular file"),
        ("folder", "it is not a regular file"),
        ("large", "it has more than 1,000,000 bytes"),
        ("digits", "is not valid TOML"),
        ("dots", "has more than 500 dots"),
    ],
)
def test_a_found_file_of_settings_is_read_only_if_it_is_a_small_file(in_folder, cli, kind, problem):
    target = in_folder / "other"
    target.write_text("[query]\nk = 1\n")
    contents = {"large": "", "digits": "a = " + "1" * 5_000, "dots": ".".join(["a"] * 100_000) + " = 1"}
    project, own = Path("ragembed.toml"), registry_file()
    own.parent.mkdir(parents=True)
    for file in (project, own):
        if kind in ("link", "device"):
            file.symlink_to(target if kind == "link" else "/dev/zero")
        elif kind == "pipe":
            os.mkfifo(file)
        elif kind == "folder":
            file.mkdir()
        else:
            file.write_text(contents[kind])
            os.truncate(file, 3 << 30 if kind == "large" else file.stat().st_size)
    assert problem in cli("status", exit_code=2).stderr
    project.unlink() if kind != "folder" else project.rmdir()
    result = cli("collection", "list", exit_code=2).stderr
    expected = {"link": "unknown key 'query'", "device": "it is not a regular file"}
    assert expected.get(kind, problem) in result


def test_a_project_of_another_user_is_not_read(in_folder, cli, monkeypatch):
    Path("ragembed.toml").write_text("[query]\nk = 1\n")
    assert find_project() == (Path("ragembed.toml").resolve(), None)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert find_project() == (None, Path("ragembed.toml").resolve())
    result = cli("query", "x", exit_code=2)
    assert "belongs to another user, so it is not read" in result.stderr
