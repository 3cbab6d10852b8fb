"""Boilerplate detection in small corpora with known repeated lines."""

import random
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.documents import boilerplate
from ragembed.documents.boilerplate import FileLines, Stripper, find, kind_of, line_keys
from ragembed.documents.model import Chunk
from tests.conftest import WORDS

LICENCE = """\
# Copyright 2024 The Wing Authors
#
# Licensed under the Wing License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
"""
MENU = "Home\nDocumentation\nDownloads\nAbout us"
FOOTER = "© 2024 Wing Ltd. All rights reserved.\n\nPrivacy policy\nTerms of use"


def sentence(draw, count=12):
    return " ".join(draw.choices(WORDS, k=count))


def compared(texts, kind):
    return [FileLines(kind, str(i), line_keys([text], kind)) for i, text in enumerate(texts)]


def stripped(text, corpus, kind):
    """Return the searched part of ``text`` in a corpus with the texts ``corpus``."""
    return Stripper(find(compared(corpus, kind))).strip(Chunk(text), kind).searched


def source_files(header=LICENCE, count=20):
    draw = random.Random(3)
    return [
        f"{header}\nimport os\nimport sys\n\n\ndef work{i}(x):\n    # {sentence(draw)}\n"
        "    if x:\n        return None\n"
        f"    else:\n        return {i}\n\n\nif __name__ == '__main__':\n    main()\n"
        for i in range(count)
    ]


def test_licence_is_removed_and_code_is_kept():
    files = source_files()
    code = files[0].removeprefix(LICENCE).strip("\n")
    assert stripped(files[0], files, "source") == code


def test_repeated_code_is_kept():
    files = source_files("", 40)
    assert find(compared(files, "source")) == {}
    assert stripped(files[0], files, "source") is None


@pytest.mark.parametrize(
    ("opening", "mark", "closing"),
    [("/*", " *", " */"), ("/*", "", " */"), ("", "//", ""), ("", "--", ""), ("<!--", "", "-->"), ("", ";;", "")],
)
def test_licence_is_found_in_comments_of_any_language(opening, mark, closing):
    lines = [f"{mark} {line.strip('# ')}" for line in LICENCE.splitlines()]
    header = "\n".join(filter(None, [opening, *lines, closing]))
    files = [f"{header}\n\nint work{i}(int x) {{\n    return {i};\n}}" for i in range(9)]
    assert stripped(files[4], files, "source") == "int work4(int x) {\n    return 4;\n}"


def test_code_that_looks_like_comments_is_kept():
    code = "#include <stdio.h>\n#define WORKING_WITH_LOCKS 1\n#pragma once for all of them\n**kwargs: Unpack[Args],\n"
    files = [f"{code}int work{i}();" for i in range(9)]
    assert find(compared(files, "source")) == {}


def test_menus_and_footers_are_removed():
    draw = random.Random(5)
    pages = [f"{MENU}\n\n# Page {i}\n\n{sentence(draw, 40)}\n\n{FOOTER}" for i in range(12)]
    body = pages[7].removeprefix(MENU).removesuffix(FOOTER).strip("\n")
    assert stripped(pages[7], pages, "html") == body


def test_headings_rules_and_short_lines_are_kept():
    draw = random.Random(6)
    pages = [
        f"# {sentence(draw, 5)}\n\n## Usage\n\n{sentence(draw)}\n\n| a | b |\n| --- | --- |\n\n{sentence(draw)}\n\n---"
        "\n\nSee also\n"
        for _ in range(12)
    ]
    assert find(compared(pages, "markdown")) == {}


def test_rule_between_removed_lines_is_kept():
    pages = [f"{sentence(random.Random(i), 30)}\n\n{MENU}\n\n---\n\n{FOOTER}" for i in range(6)]
    assert stripped(pages[0], pages, "markdown") == f"{sentence(random.Random(0), 30)}\n---"


def test_boilerplate_needs_five_files():
    assert find(compared(source_files(count=4), "source")) == {}
    assert len(find(compared(source_files(count=5), "source"))["source"]) == 3


def test_versions_of_one_text_are_not_boilerplate():
    """Twelve versions of a contract; each version changes one clause."""
    draw = random.Random(8)
    contract = [sentence(draw, 20) for _ in range(80)]
    versions = []
    for _ in range(12):
        lines = list(contract)
        lines[draw.randrange(80)] = sentence(draw)
        versions.append("\n".join(lines))
    assert find(compared(versions, "text")) == {}


def test_short_files_that_are_mostly_boilerplate():
    pages = [f"{MENU}\n\n{MENU.swapcase()}\n\nzebra {i}\n\n{FOOTER}" for i in range(6)]
    assert stripped(pages[3], pages, "html") == "zebra 3"


def test_only_files_of_the_same_kind_are_compared():
    files = compared(source_files(), "source")
    found = find([*files, FileLines("text", "LICENSE", line_keys([LICENCE], "text"))])
    assert set(found) == {"source"}
    assert Stripper(found).strip(Chunk(LICENCE), "text").searched is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a/b.py", "source"), ("Makefile", "source"), ("LICENSE", "text"), ("x.MD", "markdown"), ("rows.csv", None)],
)
def test_kind_depends_on_file_name(name, kind):
    assert kind_of(name) == kind


def test_table_rows_are_not_boilerplate():
    assert len(line_keys(["country: Germany and all of its states"], None)) == 0


def test_chunk_of_only_boilerplate_has_empty_searched_text():
    files = source_files()
    assert stripped(LICENCE, files, "source") == ""
    assert stripped(f"{LICENCE}\n}}", files, "source") == ""


def test_copyright_years_are_ignored_but_not_other_numbers():
    licences = [f"# Copyright {2000 + i} The Wing Authors and others\n# of them\n\nx = {i}" for i in range(6)]
    assert stripped(licences[2], licences, "source") == "x = 2"
    errors = [f"# the store answers with the error {500 + i}\n\nx = {i}" for i in range(6)]
    assert find(compared(errors, "source")) == {}


def test_copyright_signs_are_recognised():
    for sign in ("©", "(c)", "(C)"):
        files = [f"# {sign} {2000 + i} The Wing Authors and others\n\nx = {i}" for i in range(6)]
        assert stripped(files[2], files, "source") == "x = 2"


def test_stripper_records_removed_lines():
    files = source_files()
    stripper = Stripper(find(compared(files, "source")))
    stripper.strip(Chunk(files[0]), "source")
    assert sorted(stripper.seen.values()) == sorted(line for line in LICENCE.splitlines() if line != "#")


def test_keys_do_not_depend_on_chunk_boundaries():
    text = "\n".join([LICENCE, *source_files(count=1)])
    lines = text.split("\n")
    cut = ["\n".join(lines[:9]), "\n".join(lines[9:])]
    assert line_keys([text], "source").tolist() == line_keys(cut, "source").tolist()


LINES = st.lists(st.sampled_from([*MENU.split("\n"), *FOOTER.split("\n"), "", "---", "x", "a boundary layer of air"]))


@given(st.lists(LINES, max_size=12))
def test_find_matches_plain_loop(files):
    """Compare with a plain loop over lists of lines."""
    texts = ["\n".join(lines) for lines in files]
    unique = list(dict.fromkeys(texts))
    found = find([FileLines("text", text, line_keys([text], "text")) for text in texts])
    assert found.get("text", {}) == by_loop([line_keys([text], "text").tolist() for text in unique])


def by_loop(files):
    def repeated(files):
        chosen = {key for keys in files for key in keys}
        while True:
            in_files = dict.fromkeys(chosen, 0)
            for keys in files:
                for key in {key for run in runs(keys, chosen) for key in run}:
                    in_files[key] += 1
            kept = {key for key, count in in_files.items() if count >= max(5, len(files) / 2)}
            if kept == chosen:
                return in_files
            chosen = kept

    def runs(keys, chosen):
        run, all_runs = [], []
        for key in [*keys, None]:
            if key in chosen:
                run.append(key)
            else:
                all_runs, run = [*all_runs, run], []
        return [run for run in all_runs if sum(key & 1023 for key in run) >= boilerplate.LEAST_RUN]

    return repeated(files)


@given(LINES, st.lists(LINES, min_size=5, max_size=8))
def test_stripping_removes_lines_without_changing_others(lines, files):
    text = "\n".join(lines)
    searched = stripped(text, ["\n".join(lines) for lines in files], "text")
    if searched:
        rest = iter(lines)
        assert all(line in rest for line in searched.split("\n"))
        assert any(character.isalnum() for character in searched)


def test_keys_match_the_store_format():
    text = f"# Copyright 2024  The Wing\n#\nimport os\n\nx = 1\n// {'a' * 2000}"
    first, code, last = line_keys([text], "source").tolist()
    assert first == key_of("copyright 0 the wing")
    assert code == len("import os") + len("x = 1")
    assert last == (hash_of("a" * 2000) << 10) + 1023


def key_of(text):
    return (hash_of(text) << 10) + len(text)


def hash_of(text):
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 10
