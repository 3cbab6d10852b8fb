"""Compare extractors of text from PDF files on real files of Debian packages, and write a section of results.md.

    python benchmarks/pdf_extractors.py FOLDER [--trial]

FOLDER keeps the files. Missing packages are downloaded with ``apt-get download`` and unpacked, not installed. Only the
first 15 pages of each file are read. Poppler takes part if its program ``pdftotext`` is on the PATH.
"""

from __future__ import annotations

import argparse
import gzip
import html
import json
import re
import resource
import shutil
import subprocess
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path

from processes import Environment, say, versions
from report import machine, per_cent, significant, table, write_section

PAGES = 15
PEERS = ("pypdf", "pdfminer.six", "pdfplumber", "PyMuPDF", "pypdfium2", "pdftotext")
PACKAGES = ("pypdf", "pdfminer-six", "pdfplumber", "pymupdf", "pypdfium2")
AGREED = 3
"""Words and pairs of words that at least this many peers find in a file count as right."""
SAMPLES = {
    "manual": (
        "debian-reference-en debian-reference.en.pdf debian-reference.en.txt.gz",
        "developers-reference developers-reference.pdf developers-reference.txt.gz",
        "debian-policy policy.pdf policy.txt.gz",
        "debian-policy fhs-3.0.pdf fhs-3.0.txt.gz",
        "debmake-doc debmake-doc.en.pdf debmake-doc.en.txt.gz",
        "debmake-doc debmake-doc.de.pdf debmake-doc.de.txt.gz",
        "debmake-doc debmake-doc.ru.pdf debmake-doc.ru.txt.gz",
        "debian-faq debian-faq.en.pdf debian-faq.en.txt.gz",
        "maint-guide maint-guide.en.pdf maint-guide.en.txt.gz",
        "bash-doc doc/bash/bashref.pdf bashref.html",
        "bash-doc doc/bash/bash.pdf bash.html",
        "gnuplot-doc gnuplot.pdf",
        "octave-doc octave.pdf",
        "zsh-doc zsh.pdf",
        "gap-doc tut/manual.pdf",
        "latexml latexml/manual.pdf",
        "valgrind valgrind_manual.pdf",
        "groff automake.pdf",
        "ghostscript-doc GS9_Color_Management.pdf",
    ),
    "columns": (
        "octave-doc refcard-a4.pdf",
        "texlive-publishers-doc testflow_doc.pdf",
        "texlive-publishers-doc sample-sigconf-biblatex.pdf",
        "texlive-publishers-doc sample/aps/apssamp.pdf",
        "texlive-publishers-doc elstest-5p.pdf",
        "texlive-publishers-doc ieeepes_doc.pdf",
        "texlive-publishers-doc acmconf.pdf",
        "texlive-publishers-doc IEEEconf.pdf",
    ),
    "paper": (
        "r-cran-lme4 lmer.pdf",
        "r-cran-strucchange strucchange-intro.pdf",
        "r-cran-vcd strucplot.pdf",
        "r-cran-quantreg rq.pdf",
        "r-cran-zoo zoo-faq.pdf",
        "r-cran-mvtnorm MVT_Rnews.pdf",
    ),
    "other scripts": (
        "debmake-doc debmake-doc.ja.pdf",
        "debmake-doc debmake-doc.zh-cn.pdf",
        "texlive-lang-arabic lshort-persian/lshort.pdf",
        "texlive-lang-arabic arabi/samplebook.pdf",
        "texlive-lang-arabic arabic-book.pdf",
        "fonts-hosny-amiri Documentation-Arabic.pdf",
    ),
    "tables, forms, slides": (
        "cups-filters form_english.pdf",
        "cups-filters form_russian.pdf",
        "fonts-sil-ezra Unicode-Ezra-Chart17short.pdf",
        "fonts-sil-harmattan Harmattan-features.pdf",
        "groff slide-demo.pdf",
    ),
}  # fmt: skip
HYPHENATED = re.compile("([^\\W\\d_])[-\u00ad\u2010\ufffe\x02]\\s*\n\\s*(?=[^\\W\\d_])")
WORD = re.compile(r"[^\W\d_]+")
LONG = 18
"""Letters of a word that is probably several words."""


def main() -> None:
    """Extract all files with all extractors and print or write the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trial", action="store_true", help="read the first file of each kind; write nothing")
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    python = Environment("pdf").python
    files = samples(folder, python, given.trial)
    names = [name for name in PEERS if name != "pdftotext" or shutil.which(name)]
    texts, seconds = {}, {}
    for name in [*names, "ragembed"]:
        say(f"extracting with {name}")
        command = [sys.executable if name == "ragembed" else python, __file__, folder, "--extract", name]
        done = subprocess.run(
            [*map(str, command), *files],
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )
        texts[name], seconds[name] = json.loads(done.stdout)
    paragraphs = compare(folder, files, names, texts, seconds, python)
    print(*paragraphs, sep="\n\n")
    if not given.trial:
        write_section("Text of PDF files", paragraphs)


def samples(folder: Path, python: Path, trial: bool) -> list[str]:
    """Return the names of the cut files, whose kinds and packages are in ``SAMPLES``."""
    names = []
    for listed in SAMPLES.values():
        for line in listed[: 1 if trial else None]:
            package, path, *_ = line.split()
            name = f"{package}-{Path(path).name}"
            names.append(name)
            if not (folder / f"first-{PAGES}" / name).is_file():
                (folder / f"first-{PAGES}").mkdir(exist_ok=True)
                code = "import pypdf, sys; w = pypdf.PdfWriter(); r = pypdf.PdfReader(sys.argv[1]); "
                code += f"w.append(r, pages=(0, min({PAGES}, len(r.pages)))); w.write(sys.argv[2])"
                subprocess.run(
                    [str(python), "-c", code, str(find(folder, package, path)), str(folder / f"first-{PAGES}" / name)],
                    check=True,
                )
    return names


def find(folder: Path, package: str, path: str) -> Path:
    """Return a file of a package, which is downloaded and unpacked if it is not in ``folder``."""
    root = folder / package
    if not root.is_dir():
        say(f"downloading {package}")
        subprocess.run(["apt-get", "download", package], check=True, cwd=folder, stdout=subprocess.DEVNULL)
        (archive,) = folder.glob(f"{package}_*.deb")
        subprocess.run(["dpkg", "-x", str(archive), str(root)], check=True)
        archive.unlink()
    found = sorted(
        file
        for file in root.rglob(f"*{Path(path).name}*")
        if file.as_posix().removesuffix(".gz").endswith(path.removesuffix(".gz")) and not file.is_symlink()
    )
    if not found:
        raise FileNotFoundError(f"no {path} in the package {package}")
    if found[0].suffix == ".gz" and not path.endswith(".gz"):
        unpacked = found[0].with_suffix("")
        unpacked.write_bytes(gzip.decompress(found[0].read_bytes()))
        return unpacked
    return found[0]


def extract(name: str, file: Path) -> list[str]:
    """Return the text of each page."""
    if name == "ragembed":
        from ragembed.documents.readers import read

        return ["\n".join(document.text for document in read(file.name, file.read_bytes()))]
    if name == "pdftotext":
        done = subprocess.run(["pdftotext", str(file), "-"], check=True, stdout=subprocess.PIPE)
        return done.stdout.decode("utf-8", "replace").split("\f")
    if name == "pypdf":
        import pypdf

        return [page.extract_text() for page in pypdf.PdfReader(file).pages]
    if name == "pdfminer.six":
        from pdfminer.high_level import extract_text

        return extract_text(str(file)).split("\f")
    if name == "pdfplumber":
        import pdfplumber

        with pdfplumber.open(file) as document:
            return [page.extract_text() for page in document.pages]
    if name == "PyMuPDF":
        import pymupdf

        with pymupdf.open(file) as document:
            return [page.get_text() for page in document]
    import pypdfium2

    return [page.get_textpage().get_text_range() for page in pypdfium2.PdfDocument(file)]


def extract_all(folder: Path, name: str, files: Sequence[str]) -> None:
    """Print the texts of files, and the seconds of processor time, as JSON."""
    before = processor_seconds()
    texts = {file: "\n".join(extract(name, folder / f"first-{PAGES}" / file)) for file in files}
    print(json.dumps([texts, processor_seconds() - before]))


def processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, with those joined that are hyphenated at the end of a line."""
    text = unicodedata.normalize("NFKC", text.replace("\r\n", "\n"))
    return WORD.findall(HYPHENATED.sub(r"\1", text).lower())


def agreed(found: Iterable[Iterable[object]]) -> set[object]:
    """Return the elements that are in at least ``AGREED`` collections."""
    counts = Counter(element for each in found for element in set(each))
    return {element for element, count in counts.items() if count >= AGREED}


def compare(
    folder: Path,
    files: Sequence[str],
    names: Sequence[str],
    texts: Mapping[str, Mapping[str, str]],
    seconds: Mapping[str, float],
    python: Path,
) -> list[str]:
    """Return the paragraphs of the section of results.md."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    kinds = {
        f"{line.split()[0]}-{Path(line.split()[1]).name}": (kind, line.split())
        for kind, listed in SAMPLES.items()
        for line in listed
    }
    pages = 0
    for file in files:
        kind, (package, _, *reference) = kinds[file]
        words = {name: words_of(texts[name][file]) for name in texts}
        known = agreed(words[name] for name in names)
        pairs = agreed(pairwise(words[name]) for name in names)
        given = words_of(plain(find(folder, package, reference[0]))) if reference else []
        given_pairs, given_words = set(pairwise(given)), set(given)
        pages += min(PAGES, page_count(python, folder / f"first-{PAGES}" / file))
        for name, found in words.items():
            mine, count = set(pairwise(found)), counts[name]
            count["words"] += len(found)
            count["long"] += sum(len(word) >= LONG for word in found)
            count["glued"] += sum(is_glued(word, known | given_words) for word in found)
            count["broken"] += sum(
                first + second in known and not {first, second} <= known for first, second in pairwise(found)
            )
            for part in ("all", kind):
                count[f"pairs {part}"] += len(pairs)
                count[f"found {part}"] += len(pairs & mine)
            if reference:
                count["given"] += len(mine)
                count["right"] += len(mine & given_pairs)
    rows = []
    for name in sorted(texts, key=lambda name: (name != "ragembed", name)):
        count = counts[name]
        shares = [per_cent(count[part] / count["words"]) for part in ("long", "glued", "broken")]
        orders = [per_cent(count[f"found {part}"] / count[f"pairs {part}"]) for part in ("all", *SAMPLES)]
        own = [
            per_cent(count["right"] / count["given"]),
            significant(1000 * seconds[name] / pages),
            significant(seconds["pypdf"] / seconds[name]),
        ]
        rows.append([name, *shares, *orders, *own])
    long = f"{LONG} letters or more"
    order = ["pairs", *SAMPLES, "pairs in the source"]
    header = ["", long, "glued", "broken", *order, "ms per page", "speed, pypdf = 1"]
    about = (
        f"{len(files)} files of Debian packages, the first {PAGES} pages of each, {pages} pages. "
        f"{versions(python, *PACKAGES)}, {poppler()}. "
        f"Words are runs of letters; hyphenated words are joined. A word is known if {AGREED} of the peers find it in "
        "the file, or if the text or HTML version of the manual has it. *Glued* words are unknown and consist of known "
        "words; words with ligatures that only one extractor finds count too. *Broken* ones are two words, one of them "
        "unknown, that form a known one. *Pairs* is the share of the pairs of adjacent words on which "
        f"{AGREED} peers agree, in all files and for each kind: it falls with wrong words, with wrong reading order, "
        "and if running headers are left out. *Pairs in the source* is the share of the extracted pairs that the text "
        "or HTML version of a manual has too. Milliseconds are processor time, with the start of processes; ragembed "
        f"starts one for each file. {date.today().isoformat()}; {machine()}."
    )
    return [about, table(header, rows)]


def is_glued(word: str, known: set[object]) -> bool:
    """Return whether an unknown word consists of known words of two letters or more."""
    if len(word) < 6 or word in known:
        return False
    ends = {0}
    for stop in range(2, len(word) + 1):
        if any(stop - start >= 2 and word[start:stop] in known for start in ends):
            ends.add(stop)
    return len(word) in ends


def plain(file: Path) -> str:
    """Return the text of a reference file: text, or HTML without its markup."""
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    text = data.decode("utf-8", "replace")
    return html.unescape(re.sub(r"<[^>]*>", "", text)) if ".html" in file.name else text


def page_count(python: Path, file: Path) -> int:
    """Return the number of pages of a file."""
    code = "import pypdf, sys; print(len(pypdf.PdfReader(sys.argv[1]).pages))"
    return int(subprocess.run([str(python), "-c", code, str(file)], check=True, stdout=subprocess.PIPE).stdout)


def poppler() -> str:
    """Return the version of poppler, or that it is missing."""
    if not shutil.which("pdftotext"):
        return "without poppler"
    done = subprocess.run(["pdftotext", "-v"], check=False, stderr=subprocess.PIPE, encoding="utf-8")
    return "poppler " + done.stderr.split()[2]


if __name__ == "__main__":
    if "--extract" in sys.argv:
        extract_all(Path(sys.argv[1]), sys.argv[3], sys.argv[4:])
    else:
        main()
