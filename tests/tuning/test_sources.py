"""Pseudo-queries: their texts, the chunks that answer them, and the text that is removed from these chunks."""

import pytest

from ragembed.documents.model import Chunk
from ragembed.errors import ConfigError
from ragembed.indexes import ChunkRecord
from ragembed.indexes.tuning.pool import draw_pool
from ragembed.indexes.tuning.queries import Logged, collect, log_source, read_log
from ragembed.indexes.tuning.sources import column, docstring, first_sentence, heading, link, sentence, span, title

FILLER = "These are words that only fill the body of a chunk"


def pool_of(*passages):
    """Return a pool of ``passages``, each ``(file, text)`` or ``(file, Chunk)``, in order within a file."""
    made = [
        ChunkRecord(f"{file}#{number}", chunk if isinstance(chunk, Chunk) else Chunk(chunk), file)
        for number, (file, chunk) in enumerate(passages)
    ]
    return draw_pool(lambda: made, 10_000, 0)


def asked(source, pool):
    """Return the answers and changes of each query, by its text, with chunk ids."""
    ids = [passage.id for passage in pool.passages]
    return {
        query.text: ([ids[at] for at in query.answers], {ids[at]: chunk for at, chunk in query.changed.items()})
        for query in source(pool, 0)
    }


# Sentences


def test_sentence_is_removed_from_its_chunk():
    pool = pool_of(("a.txt", "Tea is made with water. The leaves stay in for three minutes. It is then drunk hot."))
    [(text, (answers, changed))] = asked(sentence, pool).items()
    assert answers == ["a.txt#0"]
    assert text in ("The leaves stay in for three minutes.", "It is then drunk hot.")
    assert text not in changed["a.txt#0"].text
    assert changed["a.txt#0"].text.startswith("Tea is made with water.")


def test_first_sentence_finds_the_rest_of_its_chunk():
    pool = pool_of(
        ("a.txt", "Tea is made with hot water. The leaves stay in for a while."),
        ("a.txt", "Coffee is another drink altogether. It is made with beans."),
    )
    assert asked(first_sentence, pool) == {
        "Tea is made with hot water.": (["a.txt#0"], {"a.txt#0": Chunk("The leaves stay in for a while.")})
    }
    assert "Tea is made with hot water." not in asked(sentence, pool)


def test_title_line_is_the_first_sentence_without_a_title():
    pool = pool_of(("a.txt", "wing theory of slow flow\n\nThe lift of a wing is computed for slow flow."))
    [(text, (_, changed))] = asked(first_sentence, pool).items()
    assert text == "wing theory of slow flow"
    assert changed["a.txt#0"].text == "The lift of a wing is computed for slow flow."


def test_heading_is_not_a_sentence():
    chunk = Chunk("# How tea is made at home\n\nPour hot water over the leaves.", ("How tea is made at home",))
    assert list(asked(first_sentence, pool_of(("a.md", chunk)))) == ["Pour hot water over the leaves."]


def test_chunk_with_one_sentence_gives_no_query():
    pool = pool_of(("a.txt", "Tea is made with hot water."), ("b.txt", "Short."), ("c.txt", ""))
    drawn, counts = collect(pool, {"sentence": sentence, "first": first_sentence}, 0, limit=9, changed_limit=9, least=0)
    assert drawn.queries == []
    assert counts == {"sentence": (0, 0), "first": (0, 0)}


def test_sentence_in_several_files_is_no_query():
    notice = "Copying is allowed under the licence."
    pool = pool_of(("a.txt", f"{notice} {FILLER}."), ("b.txt", f"{notice} {FILLER} of another file."))
    assert notice not in asked(first_sentence, pool)


def test_sentence_in_overlapping_chunks_is_removed_from_both():
    shared = "The leaves stay in the pot for three minutes."
    pool = pool_of(
        ("a.txt", f"Tea is made with hot water. {shared}"),
        ("a.txt", f"{shared} Then it is drunk hot or cold."),
    )
    answers, changed = asked(sentence, pool)[shared]
    assert sorted(answers) == ["a.txt#0", "a.txt#1"]
    assert {key: chunk.text for key, chunk in changed.items()} == {
        "a.txt#0": "Tea is made with hot water.",
        "a.txt#1": "Then it is drunk hot or cold.",
    }


def test_code_gives_no_sentences():
    pool = pool_of(("a.py", "def brew():\n    pass\n\nThe text is prose but the file is code. It is left alone here."))
    assert asked(sentence, pool) == asked(first_sentence, pool) == {}


def test_markdown_is_removed_from_the_query():
    pool = pool_of(("a.md", "Use `brew` for **green** tea, see [the page](tea.md). It is hot then and drunk slowly."))
    assert list(asked(first_sentence, pool)) == ["Use brew for green tea, see the page."]


def test_chinese_sentences_are_found():
    pool = pool_of(("a.txt", "茶是用热水泡的。茶叶在水里泡三分钟。然后趁热喝。"))
    assert list(asked(first_sentence, pool)) == ["茶是用热水泡的。"]


def test_lower_case_sentences_are_found():
    pool = pool_of(("a.txt", "tea is made with hot water . the leaves stay in for a while."))
    assert list(asked(first_sentence, pool)) == ["tea is made with hot water ."]
    pool = pool_of(("a.txt", "tea is made with hot water. the leaves stay in for a while."))
    assert list(asked(first_sentence, pool)) == ["tea is made with hot water."]


def test_text_without_sentences_gives_a_span_of_words():
    words = [f"word{chr(97 + n)}" for n in range(26)] * 2
    pool = pool_of(("a.txt", " ".join(words)))
    [(text, (answers, changed))] = asked(span, pool).items()
    assert answers == ["a.txt#0"]
    assert 5 <= len(text.split()) <= 12
    kept = changed["a.txt#0"].text.split()
    assert len(kept) == len(words) - len(text.split())
    size = len(text.split())
    assert any(text.split() == words[n : n + size] and kept == words[:n] + words[n + size :] for n in range(52))


def test_short_texts_and_texts_with_sentences_give_no_span():
    assert (
        asked(span, pool_of(("a.txt", f"{FILLER}. {FILLER} too. {FILLER} again."), ("b.txt", "only a few words"))) == {}
    )


# Headings and titles


def test_heading_finds_all_chunks_below_it_and_is_removed_from_each():
    top, below = "Making good tea", "Green tea"
    pool = pool_of(
        ("a.md", Chunk(f"# {top}\n\n{FILLER}.", (top,))),
        ("a.md", Chunk(f"## Green tea\n\n{FILLER} two.", (top, below))),
        ("a.md", Chunk(f"Other {FILLER}.", ("Coffee beans",))),
    )
    found = asked(heading, pool)
    answers, changed = found[top]
    assert sorted(answers) == ["a.md#0", "a.md#1"]
    assert changed["a.md#0"] == Chunk(f"{FILLER}.")
    assert changed["a.md#1"] == Chunk(f"## Green tea\n\n{FILLER} two.", (below,))
    answers, changed = found[below]
    assert answers == ["a.md#1"]
    assert changed["a.md#1"] == Chunk(f"{FILLER} two.", (top,))


def test_underline_of_a_heading_is_removed_too():
    pool = pool_of(("a.rst", Chunk(f"Making tea\n==========\n\n{FILLER}.", ("Making tea",))))
    assert asked(heading, pool)["Making tea"][1]["a.rst#0"] == Chunk(f"{FILLER}.")


def test_heading_in_several_places_is_no_query():
    pool = pool_of(
        ("a.md", Chunk(f"{FILLER} a.", ("Getting started",))), ("b.md", Chunk(f"{FILLER} b.", ("Getting started",)))
    )
    assert asked(heading, pool) == {}


def test_title_finds_its_document_and_is_removed_as_a_heading():
    chunk = Chunk(f"# All about tea\n\n{FILLER}.", ("All about tea", "Green"), "All about tea")
    pool = pool_of(("a.md", chunk), ("a.md", Chunk(f"{FILLER} two.", ("All about tea",), "All about tea")))
    [(text, (answers, changed))] = asked(title, pool).items()
    assert text == "All about tea"
    assert sorted(answers) == ["a.md#0", "a.md#1"]
    assert changed == {"a.md#0": Chunk(f"{FILLER}.", ("Green",)), "a.md#1": Chunk(f"{FILLER} two.")}
    assert "All about tea" not in asked(heading, pool)


def test_title_of_several_documents_is_no_query():
    pool = pool_of(("a.md", Chunk(FILLER, (), "The same title")), ("b.md", Chunk(f"{FILLER} b", (), "The same title")))
    assert asked(title, pool) == {}


# Links


def test_link_text_finds_its_target_and_is_removed_from_the_source():
    pool = pool_of(
        ("docs/a.md", "For more of this see [how tea is brewed](more/tea.md), which tells it all."),
        ("docs/more/tea.md", f"How tea is brewed\n\n{FILLER}."),
    )
    assert asked(link, pool) == {
        "how tea is brewed": (
            ["docs/more/tea.md#1"],
            {
                "docs/a.md#0": Chunk("For more of this see , which tells it all."),
                "docs/more/tea.md#1": Chunk(f"{FILLER}."),
            },
        )
    }


def test_link_to_a_section_finds_the_section():
    pool = pool_of(
        ("a.md", f"See [the green kind](tea.md#green-tea). {FILLER}."),
        ("tea.md", Chunk(f"{FILLER} one.", ("Black tea",))),
        ("tea.md", Chunk(f"{FILLER} two.", ("Green tea",))),
    )
    assert asked(link, pool)["the green kind"][0] == ["tea.md#2"]


@pytest.mark.parametrize(
    "address", ["https://example.org/tea.md", "missing.md", "#part", "mailto:a@b.c", "../../outside.md"]
)
def test_link_out_of_the_corpus_is_no_query(address):
    pool = pool_of(("a.md", f"See [the green kind]({address}). {FILLER}."), ("tea.md", FILLER))
    assert asked(link, pool) == {}


def test_link_text_with_two_targets_is_no_query():
    pool = pool_of(
        ("a.md", f"See [this page here](tea.md) or [this page here](coffee.md). {FILLER}."),
        ("tea.md", f"{FILLER} t"),
        ("coffee.md", f"{FILLER} c"),
    )
    assert asked(link, pool) == {}


# Code and tables


def test_docstring_finds_its_code():
    code = (
        'def brew(leaves):\n    """Pour hot water over leaves.\n\n    More of it.\n    """\n    return leaves + water\n'
    )
    pool = pool_of(("a.py", code))
    [(text, (answers, changed))] = asked(docstring, pool).items()
    assert text == "Pour hot water over leaves."
    assert answers == ["a.py#0"]
    assert changed["a.py#0"].text == "def brew(leaves):\n\n    return leaves + water"


def test_other_string_is_no_query():
    pool = pool_of(("a.py", 'x = """just a string of some words"""\nprint(x)\n'))
    assert asked(docstring, pool) == {}


@pytest.mark.parametrize(
    "comment",
    [
        "/**\n * Pours hot water over leaves.\n *\n * @param leaves the leaves\n */\n",
        "/// Pours hot water over leaves.\n///\n/// More.\n",
        "//! Pours hot water over leaves.\n",
    ],
)
def test_doc_comment_finds_its_code(comment):
    pool = pool_of(("a.rs", f"{comment}fn brew(leaves: Leaves) -> Tea {{ pour(water, leaves) }}\n"))
    [(text, (_, changed))] = asked(docstring, pool).items()
    assert text == "Pours hot water over leaves."
    assert changed["a.rs#0"].text == "fn brew(leaves: Leaves) -> Tea { pour(water, leaves) }"


def test_cell_finds_its_row():
    rows = [
        ("t.csv", f"question: who brews the tea of {name}\nanswer: {name} does it alone\nkind: common thing here")
        for name in ("anna", "bert", "cleo")
    ]
    found = asked(column, pool_of(*rows))
    assert len(found) == 3
    for text, ([answer], changed) in found.items():
        name = next(name for name in ("anna", "bert", "cleo") if name in text)
        assert name in changed[answer].text
        assert text not in changed[answer].text
        assert "common thing here" in changed[answer].text
    assert not any("common thing" in text for text in found)


def test_metadata_value_finds_its_row_without_changes():
    chunk = Chunk("tea is made with hot water", metadata={"question": "how is it made", "number": 3})
    assert asked(column, pool_of(("t.jsonl", chunk))) == {"how is it made": (["t.jsonl#0"], {})}


# The user's log


def test_logs_of_columns_and_json_are_read(tmp_path):
    log = tmp_path / "log.tsv"
    tea = "how is tea made\ttea.md\n"
    log.write_text(f'{tea}\n{{"query": "what is coffee", "path": "coffee.md"}}\nno answer\n{tea}')
    logged, without = read_log(log)
    assert logged == [Logged("how is tea made", "tea.md"), Logged("what is coffee", "coffee.md")]
    assert without == 1


@pytest.mark.parametrize("line", ['{"query": ', '{"path": "a.md"}', "\ttea.md"])
def test_invalid_log_line_raises_with_its_number(tmp_path, line):
    (tmp_path / "log.tsv").write_text(f"one\ta.md\n{line}\n")
    with pytest.raises(ConfigError, match=r"log\.tsv:2"):
        read_log(tmp_path / "log.tsv")


def test_logged_query_has_all_its_answers():
    pool = pool_of(("a.md", FILLER), ("a.md", f"{FILLER} two"), ("b.md", f"{FILLER} b"), ("c.md", f"{FILLER} c"))
    logged = [Logged("which", "a.md"), Logged("which", "b.md#2"), Logged("other", "gone.md")]
    found = asked(lambda of, _: log_source(logged, of), pool)
    assert {text: (sorted(answers), changed) for text, (answers, changed) in found.items()} == {
        "which": (["a.md#0", "a.md#1", "b.md#2"], {})
    }
