"""Boilerplate in small corpora of which every repeated line is known."""

import random
from hashlib import blake2b

import numpy as np
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
    """What is searched of ``text`` among files with the texts ``corpus``."""
    return Stripper(find(compared(corpus, kind))).strip(Chunk(text), kind).searched


def source_files(header=LICENCE, count=20):
    draw = random.Random(3)
    return [
        f"{header}\nimport os\nimport sys\n\n\ndef work{i}(x):\n    # {sentence(draw)}\n"
        "    if x:\n        return None\n"
        f"    else:\n        return {i}\n\n\nif __name__ == '__main__':\n    main()\n"
        for i in range(count)
    ]


def test_a_licence_goes_from_what_is_searched_and_code_stays():
    files = source_files()
    code = files[0].removeprefix(LICENCE).strip("\n")
    assert stripped(files[0], files, "source") == code


def test_code_that_every_file_repeats_stays():
    files = source_files("", 40)
    assert find(compared(files, "source")) == {}
    assert stripped(files[0], files, "source") is None


@pytest.mark.parametrize(
    ("opening", "mark", "closing"),
    [("/*", " *", " */"), ("/*", "", " */"), ("", "//", ""), ("", "--", ""), ("<!--", "", "-->"), ("", ";;", "")],
)
def test_a_licence_is_found_in_the_comments_of_any_language(opening, mark, closing):
    lines = [f"{mark} {line.strip('# ')}" for line in LICENCE.splitlines()]
    header = "\n".join(filter(None, [opening, *lines, closing]))
    files = [f"{header}\n\nint work{i}(int x) {{\n    return {i};\n}}" for i in range(9)]
    assert stripped(files[4], files, "source") == "int work4(int x) {\n    return 4;\n}"


def test_what_looks_like_a_comment_and_is_none_stays():
    code = "#include <stdio.h>\n#define WORKING_WITH_LOCKS 1\n#pragma once for all of them\n**kwargs: Unpack[Args],\n"
    files = [f"{code}int work{i}();" for i in range(9)]
    assert find(compared(files, "source")) == {}


def test_menus_and_footers_of_pages_go():
    draw = random.Random(5)
    pages = [f"{MENU}\n\n# Page {i}\n\n{sentence(draw, 40)}\n\n{FOOTER}" for i in range(12)]
    body = pages[7].removeprefix(MENU).removesuffix(FOOTER).strip("\n")
    assert stripped(pages[7], pages, "html") == body


def test_headings_rules_and_short_lines_of_prose_stay():
    draw = random.Random(6)
    pages = [
        f"# {sentence(draw, 5)}\n\n## Usage\n\n{sentence(draw)}\n\n| a | b |\n| --- | --- |\n\n{sentence(draw)}\n\n---"
        "\n\nSee also\n"
        for _ in range(12)
    ]
    assert find(compared(pages, "markdown")) == {}


def test_a_rule_between_lines_that_go_stays():
    pages = [f"{sentence(random.Random(i), 30)}\n\n{MENU}\n\n---\n\n{FOOTER}" for i in range(6)]
    assert stripped(pages[0], pages, "markdown") == f"{sentence(random.Random(0), 30)}\n---"


def test_paragraphs_that_a_third_of_the_pages_repeat_stay():
    draw = random.Random(7)
    paragraph = sentence(draw, 25)
    pages = [sentence(draw, 40) + (f"\n\n{paragraph}" if i % 3 == 0 else "") for i in range(30)]
    assert find(compared(pages, "markdown")) == {}


def test_four_files_have_no_boilerplate_and_five_have():
    assert find(compared(source_files(count=4), "source")) == {}
    assert len(find(compared(source_files(count=5), "source"))["source"]) == 3


def test_copies_of_a_file_count_once():
    files = compared(source_files(count=4), "source")
    assert find(files * 5) == {}


def test_files_that_are_nearly_copies_of_others_are_not_boilerplate():
    """Twelve versions of a contract, in each of which a clause has changed."""
    draw = random.Random(8)
    contract = [sentence(draw, 20) for _ in range(80)]
    versions = []
    for _ in range(12):
        lines = list(contract)
        lines[draw.randrange(80)] = sentence(draw)
        versions.append("\n".join(lines))
    assert find(compared(versions, "text")) == {}


def test_files_that_are_short_beside_what_they_repeat_have_boilerplate():
    pages = [f"{MENU}\n\n{MENU.swapcase()}\n\nzebra {i}\n\n{FOOTER}" for i in range(6)]
    assert stripped(pages[3], pages, "html") == "zebra 3"


def test_kinds_of_files_are_compared_apart():
    files = compared(source_files(), "source")
    found = find([*files, FileLines("text", "LICENSE", line_keys([LICENCE], "text"))])
    assert set(found) == {"source"}
    assert Stripper(found).strip(Chunk(LICENCE), "text").searched is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a/b.py", "source"), ("Makefile", "source"), ("LICENSE", "text"), ("x.MD", "markdown"), ("rows.csv", None)],
)
def test_a_file_is_compared_as_what_its_name_says(name, kind):
    assert kind_of(name) == kind


def test_rows_of_tables_are_no_boilerplate():
    assert len(line_keys(["country: Germany and all of its states"], None)) == 0


def test_a_chunk_of_boilerplate_alone_has_nothing_left():
    files = source_files()
    assert stripped(LICENCE, files, "source") == ""
    assert stripped(f"{LICENCE}\n}}", files, "source") == ""


def test_a_text_with_nothing_to_take_is_searched_whole():
    files = source_files()
    assert stripped("import os", files, "source") is None


def test_years_of_copyrights_do_not_matter_and_other_numbers_do():
    licences = [f"# Copyright {2000 + i} The Wing Authors and others\n# of them\n\nx = {i}" for i in range(6)]
    assert stripped(licences[2], licences, "source") == "x = 2"
    errors = [f"# the store answers with the error {500 + i}\n\nx = {i}" for i in range(6)]
    assert find(compared(errors, "source")) == {}


def test_a_copyright_is_told_by_its_signs_too():
    for sign in ("©", "(c)", "(C)"):
        files = [f"# {sign} {2000 + i} The Wing Authors and others\n\nx = {i}" for i in range(6)]
        assert stripped(files[2], files, "source") == "x = 2"


def test_counts_are_those_of_files():
    files = source_files(count=20) + [text.removeprefix(LICENCE) for text in source_files(count=20)]
    found = find(compared(files, "source"))
    assert sorted(found["source"].values()) == [20, 20, 20]


def test_the_lines_that_are_taken_are_told():
    files = source_files()
    stripper = Stripper(find(compared(files, "source")))
    stripper.strip(Chunk(files[0]), "source")
    assert sorted(stripper.seen.values()) == sorted(line for line in LICENCE.splitlines() if line != "#")


def test_it_does_not_matter_how_a_file_is_cut_into_chunks():
    text = "\n".join([LICENCE, *source_files(count=1)])
    lines = text.split("\n")
    cut = ["\n".join(lines[:9]), "\n".join(lines[9:])]
    assert line_keys([text], "source").tolist() == line_keys(cut, "source").tolist()


LINES = st.lists(st.sampled_from([*MENU.split("\n"), *FOOTER.split("\n"), "", "---", "x", "a boundary layer of air"]))


@given(st.lists(LINES, max_size=12))
def test_what_is_found_is_as_it_is_defined(files):
    """Against a plain loop over lists of lines."""
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
def test_stripping_takes_lines_and_changes_none(lines, files):
    text = "\n".join(lines)
    searched = stripped(text, ["\n".join(lines) for lines in files], "text")
    if searched:
        rest = iter(lines)
        assert all(line in rest for line in searched.split("\n"))
        assert any(character.isalnum() for character in searched)


def test_keys_are_as_the_store_format_describes():
    text = f"# Copyright 2024  The Wing\n#\nimport os\n\nx = 1\n// {'a' * 2000}"
    first, code, last = line_keys([text], "source").tolist()
    assert first == key_of("copyright 0 the wing")
    assert code == len("import os") + len("x = 1")
    assert last == (hash_of("a" * 2000) << 10) + 1023


def key_of(read):
    return (hash_of(read) << 10) + len(read)


def hash_of(read):
    return int.from_bytes(blake2b(read.encode(), digest_size=8).digest(), "big") >> 10


def test_a_hash_never_reads_as_a_size():
    keys = line_keys([WORDS[i % len(WORDS)] * (i + 1) for i in range(300)], "text")
    assert (keys > 1023).all()
    assert ((keys & np.uint64(1023)) >= 1).all()
