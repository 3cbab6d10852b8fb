"""Results whose files changed or were deleted since they were indexed: marked, counted, or updated first."""

import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from ragembed import Collection, Store
from ragembed.documents.model import Chunk
from ragembed.indexes import ChunkRecord, SourceRecord

CHANGED, DELETED = "changed since it was indexed", "deleted since it was indexed"


def touch(path):
    path.touch()


def edit(path):
    path.write_bytes(path.read_bytes().upper())


def edit_keeping_the_size_and_time(path):
    before = path.stat()
    edit(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def link(path):
    path.rename(path.with_name(f"moved-{path.name}"))
    path.symlink_to(path.with_name(f"moved-{path.name}"))


def link_folder(path):
    path.parent.rename(path.parent.with_name("moved"))
    path.parent.symlink_to("moved")


def make_folder(path):
    path.unlink()
    path.mkdir()


CHANGES = [
    (lambda path: None, None),
    (touch, None),
    (edit_keeping_the_size_and_time, None),  # as for ragembed index, it is unchanged
    (edit, CHANGED),
    (link, CHANGED),
    (link_folder, CHANGED),
    (Path.unlink, DELETED),
    (make_folder, DELETED),
    (lambda path: shutil.rmtree(path.parent), DELETED),
]


def write_below(docs):
    (docs / "below").mkdir()
    (docs / "below" / "bird.md").write_text("# Bird\n\nA zebra flies.\n")
    with zipfile.ZipFile(docs / "below" / "fish.zip", "w") as archive:
        archive.writestr("fish.md", "# Fish\n\nA delta swims.\n")


@pytest.fixture
def below(indexed_with):
    """A file and an archive in a folder below ``docs``, indexed, and a text without a file."""
    docs = indexed_with(write_below)
    with Store.open(".ragembed") as store:
        store.add(["An alpha sleeps."])
    return docs / "below"


@pytest.mark.parametrize(
    ("change", "mark", "name", "word"),
    [
        *((*change, "bird.md", "zebra") for change in CHANGES),
        *((*change, "fish.zip", "delta") for change in ((edit_keeping_the_size_and_time, None), (edit, CHANGED))),
        (Path.unlink, DELETED, "fish.zip", "delta"),
    ],
)
def test_results_and_status_tell_how_files_differ_from_the_indexed_ones(below, cli, change, mark, name, word):
    change(below / name)
    options = (word, "--mode", "lexical")
    shown, context = cli("query", *options).stdout, cli("context", *options).stdout
    assert [each for each in (CHANGED, DELETED) if each in shown] == ([] if mark is None else [mark])
    [result] = json.loads(cli("query", *options, "--json").stdout)["results"]
    [line] = map(json.loads, cli("query", *options, "--format", "jsonl").stdout.splitlines())
    assert result["stale"] is line["stale"] is (mark is not None)
    if change is not edit_keeping_the_size_and_time:  # a context reads the lines, and sees more
        assert (CHANGED in context) is (mark is not None)
    counts = json.loads(cli("status", "--json").stdout)["stale"]
    if change not in (touch, link_folder) and mark != DELETED:
        assert counts == {"changed": int(mark == CHANGED), "deleted": 0}
    if mark is not None:
        assert counts["changed" if mark == CHANGED else "deleted"] > 0
        text = cli("status").stdout
        assert f"{counts['changed']} file" in text
        assert f"{counts['deleted']} deleted since they were indexed; run ragembed index" in text


def test_what_has_no_file_here_has_no_mark(below, cli):
    url = "https://example.invalid/gamma.md"
    with Store.open(".ragembed") as store, store.writer() as writer:
        writer.stage(["A gamma runs."])
        record = ChunkRecord("url", Chunk("A gamma runs."), url)
        writer.commit(chunks=[record], sources=[SourceRecord(url, 13, 0, "", "")])
    for word in ("alpha", "gamma"):
        [result] = json.loads(cli("query", word, "--mode", "lexical", "--json").stdout)["results"]
        assert result["stale"] is False


def test_a_file_is_compared_with_the_generation_of_its_result(below, cli):
    with Store.open(".ragembed") as store:
        [hit] = store.search("zebra", mode="lexical")
        edit(below / "bird.md")
        assert store.file_states([hit]) == ["changed"]
        assert store.stale_files() == {"docs/below/bird.md": "changed"}
        assert store.stale_files(["docs/locks.md"]) == {}
        cli("index", "-q")
        assert store.file_states(store.search("zebra", mode="lexical")) == [None]


def test_stores_together_mark_their_own_files(below, cli):
    shutil.copytree("docs", "other/docs")
    shutil.copytree(".ragembed", "other/.ragembed")
    edit(below / "bird.md")
    with Collection.open({"here": ".ragembed", "there": "other/.ragembed"}) as both:
        hits = both.search("zebra", mode="lexical")
        assert dict(zip([hit.store for hit in hits], both.file_states(hits), strict=True)) == {
            "here": "changed",
            "there": None,
        }


@pytest.mark.parametrize("command", ["query", "context"])
def test_refresh_updates_the_store_first(below, cli, command):
    (below / "bird.md").write_text("# Bird\n\nA beta flies.\n")
    (below / "new.md").write_text("# New\n\nA second beta.\n")
    found = cli(command, "beta", "--mode", "lexical", "--refresh")
    assert "A beta flies." in found.stdout
    assert "A second beta." in found.stdout
    assert "since it was indexed" not in found.stdout
    assert found.stderr == ""
    (below / "new.md").unlink()
    assert "A second beta." not in cli(command, "beta", "--mode", "lexical", "--refresh").stdout


def test_refresh_updates_each_store_of_a_collection(below, cli, tiny_model, tmp_path, monkeypatch, encoder):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    cli("index", "docs/locks.md", "--store", "locks", "--model", tiny_model)
    with Store.create("texts", encoder) as texts:
        texts.add(["An epsilon."])
    stores = ("--store", "locks=locks", "--store", "below=.ragembed", "--store", "texts=texts")
    cli("collection", "add", "all-of-it", *stores)
    Path("docs/locks.md").write_text("# Locks\n\nA beta.\n")
    options = ("--mode", "lexical", "--in", "all-of-it", "--refresh", "--no-dedupe", "--json")
    results = json.loads(cli("query", "beta", *options).stdout)["results"]
    assert sorted((each["store"], each["stale"]) for each in results) == [("below", False), ("locks", False)]


def test_of_near_duplicates_the_one_whose_file_exists_is_shown(docs, cli, tiny_model):
    text = "# Bird\n\nThe zebra flies to the red store, and the green bird sleeps in the blue file of the writer.\n"
    for name in ("a", "b", "c"):
        (docs / name).mkdir()
        (docs / name / "bird.md").write_text(text)
    cli("index", docs, "--model", tiny_model)
    for name, rest in (("a", ["b", "c"]), ("b", ["c"]), ("c", [])):
        (docs / name / "bird.md").unlink()
        for command in (("query", "--json"), ("query", "--json", "--explain", "--per-file", "1")):
            [result] = json.loads(cli(*command, "zebra", "--mode", "lexical").stdout)["results"]
            others = {each["path"] for each in result["duplicates"]}
            assert result["path"] == f"docs/{(rest or ['a'])[0]}/bird.md"
            assert {result["path"], *others} == {f"docs/{each}/bird.md" for each in "abc"}
            assert result["stale"] is not bool(rest)
        assert f"docs/{(rest or ['a'])[0]}/bird.md" in cli("context", "zebra", "--mode", "lexical").stdout


def test_a_renamed_folder_that_was_indexed_again_is_shown(docs, cli, tiny_model):
    cli("index", docs, "--model", tiny_model)
    docs.rename("pages")
    cli("index", "pages", "-q")
    for mode in ("lexical", "dense", "hybrid"):
        results = json.loads(cli("query", "writer lock", "--mode", mode, "--json").stdout)["results"]
        assert {(each["path"].split("/")[0], each["stale"]) for each in results} == {("pages", False)}
        assert {each["path"].split("/")[0] for result in results for each in result["duplicates"]} == {"docs"}
