"""Build collections of documents, queries and judgements from documentation packages of Debian and PyPI.

Run it with a folder: ``python benchmarks/corpora.py build/collections``. It downloads the packages in their recorded
versions, verifies their SHA-256 sums, and writes one folder in the format of BEIR for each collection. No collection
needs a program of a package: the files are unpacked and read, not run.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import hashlib
import html
import json
import random
import re
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lxml import etree
from lxml import html as lxml_html
from processes import say

DOCUMENTS, QUERIES = 300, 150
"""Maximum numbers of documents and queries of a collection: few, so that a processor encodes all in an hour."""
_CHARACTERS, _CHARACTERS_OTHER = 500, 250
"""Documents are cut to this length; in scripts other than Latin, because MiniLM makes a token of each character."""
_SHORTEST, _SHORTEST_OTHER = 120, 50
_RELEVANT = 5
"""A query with more relevant documents than this is too general, and left out."""
_SEED = 0


@dataclass(frozen=True, slots=True)
class Document:
    """A document; ``title`` may be empty."""

    text: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Texts:
    """Documents by id, and queries with the ids of their relevant documents.

    ``hidden`` is true if a query is a part that was taken out of its document, such as its title.
    """

    documents: Mapping[str, Document]
    queries: Sequence[tuple[str, str]]
    hidden: bool


Builder = Callable[[Path], Texts]


@dataclass(frozen=True, slots=True)
class Corpus:
    """A collection: its packages, how to read them, its language for a store, and what it consists of."""

    packages: tuple[str, ...]
    build: Callable[[Path], Texts]
    language: str
    domain: str
    queries: str
    licence: str

    @property
    def cjk(self) -> bool:
        """Whether the texts have Chinese, Japanese or Korean characters."""
        return self.language in {"Chinese", "Japanese", "Korean"}

    @property
    def latin(self) -> bool:
        """Whether the language has the Latin script."""
        return not self.cjk and self.language != "Russian"

    @property
    def stemmer(self) -> str:
        """The value of ``--language`` for a store."""
        name = self.language.lower()
        return "none" if self.cjk or name == "polish" else name


# --- reading packages -------------------------------------------------------------------------------------------------


def man_pages(folder: Path) -> dict[str, tuple[str, str]]:
    """Return the description and the text of each man page, by name."""
    found = {}
    for file in sorted(folder.glob("man[1-8]/*.gz")):
        sections = _man_sections(gzip.decompress(file.read_bytes()).decode("utf-8", "replace"))
        name = re.split(r"\s[-–—]+\s", sections[0], maxsplit=1) if sections else []
        if len(name) == 2 and len(sections) > 1:
            # The second section is usually the synopsis, and the third the description.
            found[file.name] = (name[1], max(sections[1:3], key=len))
    return found


def _man_sections(source: str) -> list[str]:
    """Return the texts of the sections of a man page, without requests and fonts."""
    parts = re.split(r"^\.\s*S[Hh]\b.*\n", source, flags=re.MULTILINE)[1:]
    return [" ".join(" ".join(_man_words(part)).split()) for part in parts]


def _man_words(section: str) -> Iterator[str]:
    for line in section.splitlines():
        if re.match(r"['.]\s*(\\\"|(TH|de|ds|if|ie|el|nr|so|ig|in|sp|ta|ti|ft|ad|nh|hy|ne|TS|TE|PD|RS|RE)\b)", line):
            continue
        text = re.sub(r"^['.]\s*[A-Za-z]+\s*", "", line) if line[:1] in ".'" else line
        text = re.sub(r"\\f(\[[^]]*\]|\(..|.)|\\s[-+]?\d+|\\[&,/|^%:]|\\\".*", "", text)
        text = re.sub(r"\\\((?:hy|en|em)|\\-|\\\[(?:hy|en|em)\]", "-", text)
        yield re.sub(r"\\e", r"\\", re.sub(r"\\\(..|\\\[[^]]*\]|\\\*(?:\(..|.)", " ", text)).replace('"', "")


def help_pages(folder: Path) -> dict[str, tuple[str, str]]:
    """Return the title and the text of each help page of LibreOffice, by its path in the help."""
    found = {}
    for file in sorted(folder.glob("usr/share/libreoffice/help/*/text/**/*.html")):
        source = file.read_text(encoding="utf-8")
        title = re.search(r"<title>(.*?)</title>", source, re.DOTALL)
        parts = re.findall(r'<p id="[^"]*" class="paragraph"[^>]*>(.*?)</p>', source, re.DOTALL)
        text = " ".join(" ".join(html.unescape(re.sub(r"<[^>]*>", "", part)) for part in parts).split())
        if title and text:
            name = file.as_posix().partition("/text/")[2]
            found[name] = (" ".join(html.unescape(title[1]).split()), text)
    return found


def _hidden(pages: Mapping[str, tuple[str, str]], names: Mapping[str, str] | None = None) -> Texts:
    """Return texts whose queries are parts of the pages, such as titles: ``(query, text)`` by id."""
    documents = {key: Document(text, (names or {}).get(key, "")) for key, (_, text) in pages.items()}
    return Texts(documents, [(query, key) for key, (query, _) in pages.items()], hidden=True)


def _text(element: etree._Element) -> str:
    return " ".join(" ".join(element.itertext()).split())


def _parsed(file: Path) -> etree._Element:
    return lxml_html.fromstring(file.read_bytes(), parser=lxml_html.HTMLParser(encoding="utf-8"))


def _titled_sections(tree: etree._Element, path: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the title, the own text and the ids of each section at ``path``, without the sections in it.

    Ids of elements that are cut off are left out.
    """
    for section in tree.xpath(path):
        inner = set(section.xpath(f".{path.removeprefix('.')}"))
        heading = next(iter(section.xpath("(.//h1|.//h2|.//h3|.//h4|.//h5)[1]")), None)
        if heading is None:
            continue
        words: list[str] = []
        ids: list[tuple[str, int]] = []
        _own(section, inner, heading, words, ids)
        title = re.sub(r"^([A-Z]|\d+)(\.\d+)*\.\s+", "", _text(heading).rstrip("¶ "))
        kept = [name for name, before in ids if len(" ".join(" ".join(words[:before]).split())) < _CHARACTERS]
        yield title, " ".join(" ".join(words).split()), kept


def titled_sections(file: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the title, the text and the ids of each section of a page that Sphinx made."""
    return _titled_sections(_parsed(file), "//section")


def _own(
    element: etree._Element,
    inner: set[etree._Element],
    heading: etree._Element,
    words: list[str],
    ids: list[tuple[str, int]],
) -> None:
    """Collect the texts of an element, without its heading and the elements ``inner``, and ids after so many texts."""
    ids += [(value, len(words)) for value in (element.get("id"), element.get("name")) if value]
    if element.text and isinstance(element.tag, str) and element.tag not in {"script", "style"}:
        words.append(element.text)
    for child in element:
        if child is heading or child.get("class") == "titlepage":
            ids += [(name, len(words)) for name in child.xpath(".//@id|.//@name")]
        elif child not in inner and isinstance(child.tag, str) and child.get("class") != "toc":
            _own(child, inner, heading, words, ids)
        if child.tail:
            words.append(child.tail)


def _perl_faq(folder: Path) -> Texts:
    pages = {}
    for file in sorted(folder.glob("perl-doc/usr/share/perl/*/pod/perlfaq[1-9].pod")):
        parts = re.split(r"^=head2 (.*)\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for number, (question, answer) in enumerate(zip(parts[1::2], parts[2::2], strict=True)):
            text = re.split(r"^=head1", answer, flags=re.MULTILINE)[0]
            pages[f"{file.stem}-{number}"] = _pod(question), _pod(re.sub(r"^=\w+.*", "", text, flags=re.MULTILINE))
    return _hidden(pages)


def _pod(text: str) -> str:
    """Return the text of POD without its formatting codes."""
    text = re.sub(r"X<[^<>]*>", "", text)  # an entry of the index, which is not shown
    while (plain := re.sub(r"\b[BCFILSZ]<(?:<+ (.*?) >+|([^<>]*))>", r"\1\2", text, flags=re.DOTALL)) != text:
        text = plain
    return " ".join(text.replace("E<gt>", ">").replace("E<lt>", "<").split())


def _python_faq(folder: Path) -> Texts:
    pages = {}
    for file in sorted(folder.glob("python3.11-doc/usr/share/doc/python3.11/html/faq/*.html")):
        for title, text, ids in _titled_sections(_parsed(file), "//section"):
            if len(text) > _SHORTEST:
                pages[f"{file.stem}-{ids[0]}"] = title, text
    return _hidden(pages)


def _debian_faq(folder: Path) -> Texts:
    pages = {}
    for file in sorted(folder.glob("debian-faq-fr/usr/share/doc/debian/FAQ/fr/*.html")):
        for title, text, ids in _titled_sections(_parsed(file), "//div[@class='section']"):
            pages[f"{file.name.partition('.')[0]}-{ids[0]}"] = title, text
    return _hidden(pages)


def _finance(folder: Path, code: str) -> Texts:
    pages = {}
    level = "//div[@class='sect1' or @class='sect2' or @class='sect3' or @class='section']"
    for file in sorted(folder.glob(f"gnucash-docs/usr/share/doc/gnucash-docs/gnucash-*-{code}/*.html")):
        for title, text, ids in _titled_sections(_parsed(file), level):
            pages[f"{file.parent.name.split('-')[1]}-{ids[0]}" if ids else f"{file.stem}-{len(pages)}"] = title, text
    return _hidden(pages)


def _gnome(folder: Path, code: str) -> Texts:
    def read(file: Path) -> tuple[str, str]:
        tree = etree.parse(
            str(file), etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
        ).getroot()
        name = "{http://projectmallard.org/1.0/}"
        title = tree.find(f"{name}title")
        info = tree.find(f"{name}info")
        summary = "" if info is None or info.find(f"{name}desc") is None else _text(info.find(f"{name}desc"))
        body = [_text(child) for child in tree if child not in (title, info) and isinstance(child.tag, str)]
        return "" if title is None else _text(title), " ".join([summary, *body])

    help_folder = folder / "gnome-user-docs/usr/share/help"
    pages = {}
    for file in sorted((help_folder / code / "gnome-help").glob("*.page")):
        found, english = read(file), read(help_folder / "C/gnome-help" / file.name)
        if found[0] and (code == "C" or found[0] != english[0]):
            pages[file.stem] = found
    return _hidden(pages)


def _apache(folder: Path, code: str) -> Texts:
    def read(language: str) -> dict[str, tuple[str, str, str]]:
        found = {}
        for file in sorted((folder / f"apache2-doc/usr/share/doc/apache2-doc/manual/{language}/mod").glob("*.html")):
            for section in _parsed(file).xpath("//div[@class='directive-section']"):
                name = section.xpath("string(./h2/span/@id)") or section.xpath("string(./h2/@id)")
                rows = section.xpath("./table[@class='directive']//tr[1]/td")
                for each in section.xpath("./h2|./table[@class='directive']"):
                    each.drop_tree()
                if rows and name:
                    found[f"{file.stem}-{name}"] = name, _text(rows[0]), _text(section)
        return found

    pages, english = read(code), read("en")
    translated = {
        key: page for key, page in pages.items() if code == "en" or (key in english and page[1] != english[key][1])
    }
    titles = {key: name for key, (name, _, _) in translated.items()}
    return _hidden({key: (about, text) for key, (_, about, text) in translated.items()}, titles)


def _man(folder: Path, code: str, own_script: bool = False) -> Texts:
    package = f"manpages-{code.partition('_')[0]}"
    pages = man_pages(folder / package / "usr/share/man" / code)
    return _hidden({key: page for key, page in pages.items() if not own_script or is_foreign(page[0])})


def is_foreign(text: str) -> bool:
    """Return whether at least half of the letters are not ASCII."""
    letters = [letter for letter in text if letter.isalpha()]
    return sum(not letter.isascii() for letter in letters) * 2 >= max(1, len(letters))


def _lintian(folder: Path) -> Texts:
    pages = {}
    for file in sorted(folder.glob("lintian/usr/share/lintian/tags/**/*.tag")):
        source = file.read_text(encoding="utf-8")
        tag = re.search(r"^Tag: (.*)", source, re.MULTILINE)
        about = re.search(r"^Explanation:(.*(?:\n .*)*)", source, re.MULTILINE)
        if tag and about:
            lines = [line.strip() for line in about[1].splitlines()]
            text = html.unescape(re.sub(r"<[^>]*>", "", " ".join(line for line in lines if line != ".")))
            pages[tag[1].strip()] = tag[1].strip().replace("-", " "), " ".join(text.split())
    return _hidden(pages)


def _grass(folder: Path) -> Texts:
    pages, names = {}, {}
    for file in sorted(folder.glob("grass-doc/usr/share/doc/grass-doc/html/*.html")):
        source = file.read_text(encoding="utf-8", errors="replace")
        about = re.search(r'<meta name="description" content="[\w.]+: (.*?)">', source)
        body = re.search(r"<h2><a name=\"description\">.*?</h2>(.*?)(?:<h2><a name=\"see-also\"|\Z)", source, re.DOTALL)
        if about and body:
            pages[file.stem] = html.unescape(about[1]), _text(lxml_html.fromstring(f"<div>{body[1]}</div>"))
            names[file.stem] = file.stem
    return _hidden(pages, names)


def _networkx(folder: Path) -> Texts:
    pages = {}
    [wheel] = folder.glob("networkx-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if not name.startswith("networkx/") or not name.endswith(".py") or "/tests/" in name:
                continue
            source = archive.read(name).decode("utf-8")
            for node in ast.walk(ast.parse(source)):
                if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                    continue
                doc = ast.get_docstring(node)
                if not doc:
                    continue
                first, last = node.body[0].lineno, node.body[0].end_lineno or 0
                lines = source.splitlines()
                kept = [*lines[node.lineno - 1 : first - 1], *lines[last : node.end_lineno]]
                summary = " ".join(re.sub(r"`+|\$", "", doc.split("\n\n")[0]).split())
                pages[f"{name.removesuffix('.py')}:{node.name}"] = summary, "\n".join(kept)
    return _hidden(pages)


def _office(folder: Path, code: str) -> Texts:
    package = folder / f"libreoffice-help-{code}"
    pages = help_pages(package)
    source = (package / f"usr/share/libreoffice/help/{code}/bookmarks.js").read_text(encoding="utf-8")
    queries = []
    for page, entry in re.findall(r'\{url:"[^"]*?/text/([^"?#]*)[^"]*", app:"[^"]*", text:"((?:[^"\\]|\\.)*)"', source):
        if page in pages:
            queries.append((html.unescape(re.sub(r"\s*--\s*", " ", entry.replace('\\"', '"'))), page))
    if code == "ru":  # some pages are not translated
        pages = {key: page for key, page in pages.items() if is_foreign(page[1])}
        queries = [(query, page) for query, page in queries if is_foreign(query)]
    return Texts({key: Document(text, title) for key, (title, text) in pages.items()}, queries, hidden=False)


def _postgres(folder: Path) -> Texts:
    pages = folder / "postgresql-doc-15/usr/share/doc/postgresql-doc-15/html"
    level = (
        "//div[starts-with(@class, 'sect') or starts-with(@class, 'refsect') or @class='chapter' or @class='refentry']"
    )
    documents, place = {}, {}
    for file in sorted(pages.glob("*.html")):
        if file.name != "bookindex.html":
            first = ""
            for title, text, ids in _titled_sections(_parsed(file), level):
                if ids:
                    documents[f"{file.name}#{ids[0]}"] = Document(text, title)
                    place |= {f"{file.name}#{each}": f"{file.name}#{ids[0]}" for each in ids}
                    first = first or f"{file.name}#{ids[0]}"
            place[file.name] = first
    queries = []
    for entry in _parsed(pages / "bookindex.html").xpath("//dt"):
        above = [each.getprevious() for each in entry.iterancestors("dd")]
        terms = [each.text for each in [*reversed([each for each in above if each is not None]), entry] if each.text]
        query = " ".join(" ".join(terms).replace(",", " ").split())
        if "_" not in query:  # names of parameters are words of the page
            links = entry.xpath("./a[@class='indexterm']/@href")
            queries += [(query, place[link]) for link in links if place.get(link) in documents]
    return Texts(documents, queries, hidden=False)


def _music(folder: Path, code: str) -> Texts:
    root = folder / f"lilypond-doc-html-{code}/usr/share/doc/lilypond/html/Documentation"
    documents: dict[str, Document] = {}
    queries = []
    for manual in ("notation", "learning"):
        place: dict[str, str] = {}
        for file in sorted((root / manual).glob(f"*.{code}.html")):
            if "index" not in file.name:
                _split_at_headings(file, f"{manual}/", documents, place)
        for index in sorted((root / manual).glob(f"lilypond-index.{code}.html")):
            for row in _parsed(index).xpath("//tr[count(td) >= 3]"):
                links = row.xpath("./td/a")
                if len(links) == 2 and not links[0].xpath(".//code") and (key := place.get(links[0].get("href"))):
                    queries.append((_text(links[0]).replace(",", ""), key))
    return Texts(documents, queries, hidden=False)


def _split_at_headings(file: Path, prefix: str, documents: dict[str, Document], place: dict[str, str]) -> None:
    """Add the sections of a page without nested elements for sections, and the place of each entry of the index.

    A section has the name of the last anchor before its heading. Entries in a part that is cut off are left out.
    """
    tree = _parsed(file)
    for each in tree.xpath("//table[contains(@class, 'nav')]|//script|//style|//table[@class='menu']"):
        each.drop_tree()
    names: list[str] = []
    key, title, words = "", "", [""]
    for element in tree.iter():
        if not isinstance(element.tag, str):
            continue
        if element.tag == "a" and (name := element.get("name", "")):
            if not name.startswith("index-"):
                names.append(name)
            elif key and len(" ".join(" ".join(words).split())) < _CHARACTERS:
                place[f"{file.name}#{name}"] = key
        if element.tag in {"h1", "h2", "h3", "h4", "h5"}:
            if key:
                documents[key] = Document(" ".join(" ".join(words).split()), title)
            key, title, words = f"{prefix}{file.name}#{names[-1] if names else ''}", _text(element), []
            title = re.sub(r"^([A-Z]|\d+)(\.\d+)*\.?\s+", "", title)
            names = []
        elif not any(each.tag in {"h1", "h2", "h3", "h4", "h5"} for each in element.iterancestors()):
            words.append(element.text or "")
        words.append(element.tail or "")
    if key:
        documents[key] = Document(" ".join(" ".join(words).split()), title)


def _in(build: Callable[[Path, str], Texts], code: str) -> Builder:
    return lambda folder: build(folder, code)


_TITLES, _DESCRIPTIONS, _INDEX = "titles of sections", "one-line descriptions", "entries of the index"
CORPORA: Mapping[str, Corpus] = {
    "perl-faq": Corpus(("perl-doc",), _perl_faq, "English", "Perl", "questions", "Artistic or GPL-1+"),
    "python-faq": Corpus(("python3.11-doc",), _python_faq, "English", "Python", "questions", "PSF-2.0"),
    "postgres-index": Corpus(("postgresql-doc-15",), _postgres, "English", "databases", _INDEX, "PostgreSQL"),
    "networkx": Corpus(("networkx",), _networkx, "English", "source code", "docstrings of functions", "BSD-3-Clause"),
    "lintian": Corpus(("lintian",), _lintian, "English", "packaging", "names of checks", "GPL-2+"),
    "grass": Corpus(("grass-doc",), _grass, "English", "geography", _DESCRIPTIONS, "GPL-2+"),
    "finance-en": Corpus(
        ("gnucash-docs",), _in(_finance, "en"), "English", "accounting", _TITLES, "GFDL-1.1+, no invariant sections"
    ),
    "office-de": Corpus(("libreoffice-help-de",), _in(_office, "de"), "German", "office", _INDEX, "MPL-2.0"),
    "gnome-es": Corpus(
        ("gnome-user-docs",), _in(_gnome, "es"), "Spanish", "desktop", "titles of pages", "CC-BY-SA-3.0"
    ),
    "debian-faq-fr": Corpus(("debian-faq-fr",), _debian_faq, "French", "Debian", "questions", "copyleft notice of SPI"),
    "music-fr": Corpus(("lilypond-doc-html-fr",), _in(_music, "fr"), "French", "music", _INDEX, "GFDL-1.3+"),
    "finance-pt": Corpus(
        ("gnucash-docs",),
        _in(_finance, "pt"),
        "Portuguese",
        "accounting",
        _TITLES,
        "GFDL-1.1+, no invariant sections",
    ),
    "man-pl": Corpus(("manpages-pl",), _in(_man, "pl"), "Polish", "commands", _DESCRIPTIONS, "GPL-3+"),
    "apache-tr": Corpus(("apache2-doc",), _in(_apache, "tr"), "Turkish", "web servers", _DESCRIPTIONS, "Apache-2.0"),
    "office-ru": Corpus(("libreoffice-help-ru",), _in(_office, "ru"), "Russian", "office", _INDEX, "MPL-2.0"),
    "apache-ja": Corpus(("apache2-doc",), _in(_apache, "ja"), "Japanese", "web servers", _DESCRIPTIONS, "Apache-2.0"),
    "gnome-ko": Corpus(("gnome-user-docs",), _in(_gnome, "ko"), "Korean", "desktop", "titles of pages", "CC-BY-SA-3.0"),
    "man-zh": Corpus(
        ("manpages-zh",),
        lambda folder: _man(folder, "zh_CN", own_script=True),
        "Chinese",
        "commands",
        _DESCRIPTIONS,
        "GFDL-1.2+ and others",
    ),
}
"""All collections by name."""

PYPI = frozenset({"networkx"})
PACKAGES: Mapping[str, tuple[str, str]] = {
    "apache2-doc": (
        "2.4.71-1~deb12u1",
        "a7b3d1131c1c63dbf9999b28e75f9a133d30f70492b419936bd51759ac77a01f",
    ),
    "debian-faq-fr": (
        "11.1",
        "e83cbcc28106fc35f6665a6b0c54c2bd66db481de409764ce35b715baca510df",
    ),
    "debian-reference-en": (
        "2.100",
        "9f31d3a17df505de09689ca255512ea58c1fc47c59bb1b0c7bf1c23362e9743f",
    ),
    "git-doc": (
        "1:2.39.5-0+deb12u3",
        "3c89668a11053a6bafade3de1f611f4613db31e082af63f43d8c5b69ad8795ec",
    ),
    "gnome-user-docs": (
        "43.0-2",
        "0d635a840747958ca84da778b40d341f1155603851f922c9a171f5a181d6a39f",
    ),
    "gnucash-docs": (
        "4.13-1",
        "09979baf0ff8ddc1f9c39320c2c38ff606d6f4656e04742ff2dc51f2d562996f",
    ),
    "grass-doc": (
        "8.2.1-1",
        "0f6da53d1f7d51b019dfe64bf45718b64022989afc94bb6c833f495aa2f61ff7",
    ),
    "libreoffice-help-de": (
        "4:7.4.7-1+deb12u14",
        "00490b63c509ac96f7f212d6a6e40452d3e0d1f97ccf4b824dd5ec4c01e8277f",
    ),
    "libreoffice-help-ru": (
        "4:7.4.7-1+deb12u14",
        "5a2f75d5b0dfcf660275070647af528a81be28b5d3e9c3ec2d419ef5518db7a2",
    ),
    "lilypond-doc-html-fr": (
        "2.24.1-2",
        "6e71579c7cacb85a964ddb44a1911895065ebc57609e4f65eda57b9ef4b0f564",
    ),
    "lintian": (
        "2.116.3+deb12u1",
        "c4f65b67b22f94b255fcfcb8c5154011afddea1e9d8c941d28e2285375badddc",
    ),
    "manpages-pl": (
        "1:4.18.1-1",
        "31e518ea8331b5204d4fd0032037f96af1ba94a5afa4f0585dca1996b270cdf9",
    ),
    "manpages-zh": (
        "1.6.4.0-1",
        "81bae29495f6445db290e3f329f1203eb19b651c2a7ea165b74ebdc853a32ac1",
    ),
    "networkx": (
        "3.5",
        "0030d386a9a06dee3565298b4a734b68589749a544acbb6c412dc9e2489ec6ec",
    ),
    "perl-doc": (
        "5.36.0-7+deb12u4",
        "f4269cff4576d6f02a6756df842988e58451c7e945b08517dd235531b24e48f8",
    ),
    "postgresql-doc-15": (
        "15.20-0+deb12u1",
        "4c44bf2c599f208b3f46454a6cf7a72e25ec46ff74d37b59dd31ad76b00eebb7",
    ),
    "python3.11-doc": (
        "3.11.2-6+deb12u9",
        "5b3594189d6ef9a6963ce0347fd307a1cc67620ad697e144db366070e2e146be",
    ),
}
"""The version and the SHA-256 sum of each package."""


# --- writing ----------------------------------------------------------------------------------------------------------


def sampled(texts: Texts, corpus: Corpus) -> tuple[dict[str, Document], dict[str, tuple[str, list[str]]]]:
    """Return the documents, and the queries with their relevant documents, by id.

    Left out are short documents; queries with fewer than two words (or four characters without blanks); queries of
    several documents if ``texts.hidden``, or of more than ``_RELEVANT`` documents; hidden queries that their document
    repeats; and queries that are the title of a document. The draws depend on the seed alone.
    """
    characters, shortest = (_CHARACTERS, _SHORTEST) if corpus.latin else (_CHARACTERS_OTHER, _SHORTEST_OTHER)
    documents = {
        key: Document(cut(each.text, characters), each.title)
        for key, each in texts.documents.items()
        if len(each.text) >= shortest
    }
    relevant: dict[str, dict[str, None]] = defaultdict(dict)
    spelling: dict[str, str] = {}
    for query, key in texts.queries:
        text = " ".join(query.split())
        spelling.setdefault(text.casefold(), text)
        relevant[text.casefold()][key] = None
    usable = {
        query: [key for key in keys if key in documents]
        for query, keys in relevant.items()
        if _is_usable(query, corpus) and len(keys) <= (1 if texts.hidden else _RELEVANT)
    }
    usable = {
        query: keys
        for query, keys in usable.items()
        if keys
        and not any(query == documents[key].title.casefold() for key in keys)
        and not (texts.hidden and any(query in documents[key].text.casefold() for key in keys))
    }
    draw = random.Random(_SEED)
    drawn = sorted(draw.sample(sorted(usable), min(len(usable), QUERIES)))
    judged = {key for query in drawn for key in usable[query]}
    others = sorted(documents.keys() - judged)
    kept = judged | set(draw.sample(others, min(len(others), max(0, DOCUMENTS - len(judged)))))
    queries = {f"q{number}": (spelling[query], usable[query]) for number, query in enumerate(drawn, 1)}
    return {key: documents[key] for key in sorted(kept)}, queries


def cut(text: str, characters: int) -> str:
    """Return the beginning of a text, up to the last blank or line break before ``characters``."""
    if len(text) <= characters:
        return text
    end = max(text.rfind(" ", 0, characters), text.rfind("\n", 0, characters))
    return text[: end if end > characters // 2 else characters]


def _is_usable(query: str, corpus: Corpus) -> bool:
    words = [word for word in query.split() if any(letter.isalpha() for letter in word)]
    return len(query) >= 4 if corpus.cjk else len(words) >= 2 and len(query) >= 8


def write(folder: Path, documents: Mapping[str, Document], queries: Mapping[str, tuple[str, list[str]]]) -> None:
    """Write a collection in the format of BEIR."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    corpus = ({"_id": key, "title": each.title, "text": each.text} for key, each in documents.items())
    _write_lines(folder / "corpus.jsonl", (json.dumps(one, ensure_ascii=False) for one in corpus))
    asked = ({"_id": key, "text": text} for key, (text, _) in queries.items())
    _write_lines(folder / "queries.jsonl", (json.dumps(one, ensure_ascii=False) for one in asked))
    judged = (f"{key}\t{document}\t1" for key, (_, found) in queries.items() for document in found)
    _write_lines(folder / "qrels/test.tsv", ["query-id\tcorpus-id\tscore", *judged])


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")


def build(folder: Path, names: Sequence[str], packages: Path, current: bool = False) -> None:
    """Write the collections ``names`` into ``folder``; downloaded packages stay in ``packages``."""
    packages.mkdir(parents=True, exist_ok=True)
    for name in names:
        corpus = CORPORA[name]
        for package in corpus.packages:
            fetch(package, packages, current)
        documents, queries = sampled(corpus.build(packages), corpus)
        write(folder / name, documents, queries)
        say(f"{name}: {len(documents):,} documents, {len(queries)} queries")


def fetch(package: str, packages: Path, current: bool = False) -> None:
    """Download a package into ``packages``, verify it, and unpack a Debian package into a folder of its name."""
    recorded, digest = PACKAGES.get(package, ("", ""))
    pattern = f"{package}-*.whl" if package in PYPI else f"{package}_*.deb"
    packages.mkdir(parents=True, exist_ok=True)
    if not list(packages.glob(pattern)):
        version = "" if current else recorded
        wanted = f"{package}{'==' if package in PYPI else '='}{version}" if version else package
        command = ["apt-get", "download", "-qq", wanted]
        if package in PYPI:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", wanted]
        if subprocess.run(command, cwd=packages, check=False).returncode:
            raise SystemExit(
                f"cannot download {wanted}: run 'apt-get update', or use the present version with --current"
            )
    [file] = packages.glob(pattern)
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != digest and not current:
        raise SystemExit(f"{file} has the SHA-256 sum {found}, expected {digest}: remove it, or use --current")
    if package not in PYPI and not (packages / package).is_dir():
        partial = packages / f"{package}.partial"
        subprocess.run(["dpkg-deb", "-x", str(file), str(partial)], check=True)
        partial.rename(packages / package)


def main() -> None:
    """Build the collections that are named on the command line, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build/collections"))
    parser.add_argument("--only", nargs="+", choices=sorted(CORPORA), metavar="NAME", help="collections to build")
    parser.add_argument("--packages", type=Path, help="folder of downloaded packages (default: packages beside FOLDER)")
    parser.add_argument("--current", action="store_true", help="use present versions of packages; verify no sums")
    arguments = parser.parse_args()
    packages = arguments.packages or arguments.folder.resolve().parent / "packages"
    build(arguments.folder, arguments.only or list(CORPORA), packages, arguments.current)


if __name__ == "__main__":
    main()
