"""Tokens until an answer is in the context of an agent: the tools of `ragembed mcp`, and ripgrep."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median

from data import Setting
from report import table
from speed import Outcome

import ragembed
from ragembed.models.token_counting import estimated_tokens
from ragembed.serving.stores import ServedStores
from ragembed.serving.tools import StoreTools

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("docs", "ragembed", "indexes", "cli")
QUESTIONS = (
    ("What happens to a store if the power fails while it is indexed?", r"old or the new state|last commit"),
    ("Which port does the HTTP server listen on by default?", r"8765"),
    ("How do I search only Markdown files?", r"ext = 'md'|--path '\*\.md'"),
    ("How long may a call of an agent take?", r"60 seconds"),
    ("What does a relevance below 0.5 mean?", r"[Ww]eak match|probably"),
    ("How can several folders be searched as one?", r"ragembed collection"),
    ("Which environment variable holds the token of the server?", r"RAGEMBED_SERVE_TOKEN"),
    ("How do I keep a store up to date while files change?", r"--watch"),
    ("What is the exit status of a query without results?", r"1 without|status 1|1 if nothing"),
    ("How are vectors of a store changed without encoding again?", r"ragembed refit"),
    ("where is BM25 computed", r"class Postings|def (_scores|all_scores|idf|_computed)\("),
    ("function that decides whether a host header names this server", r"def allow\("),
    ("where are near-duplicate texts recognised", r"class NearDuplicates|def (place|_shingles)\("),
    ("reciprocal rank fusion", r"def \w*(rrf|fuse|reciprocal)\w*\("),
    ("how is the writer lock of a store taken", r"StoreLockedError|FileLock\("),
    ("split text into chunks within a number of tokens", r"class Chunker"),
    ("convert a filter to SQL", r"def to_sql\("),
    ("read the text of a PDF page", r"pypdfium2|PdfDocument|def \w*page\w*\("),
    ("compute the logistic relevance of a hit", r"class (Logistic|RelevanceModel)"),
    ("replace a file atomically", r"def replace_file\("),
)
"""Questions on the documentation and the source of ragembed, each with a pattern that its answer contains."""
_HITS = 5
_WORD = re.compile(r"[A-Za-z0-9]{3,}")

Way = Callable[[str, "re.Pattern[str]"], tuple[int, bool]]


def agent(setting: Setting) -> Outcome:
    """Count the tokens of each way, until the answer is there or the way ends."""
    folder = setting.cache / "agent"
    if not folder.exists():
        for name in FOLDERS:
            ignored = shutil.ignore_patterns("__pycache__", "_static", "screenshots", "_build")
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        ragembed.index([folder / name for name in FOLDERS], store=folder / ".ragembed")
    tools = StoreTools(ServedStores({"ragembed": folder / ".ragembed"}))
    questions = QUESTIONS[: setting.choose(len(QUESTIONS), 3)]
    ways: dict[str, Way] = {
        "`search`": lambda question, answer: _searched(tools, question, answer),
        "`search` with `detail: full`": lambda question, answer: _searched(tools, question, answer, detail="full"),
        "JSON of whole passages": lambda question, answer: _as_json(tools, question, answer),
        "`rg` with two words": lambda question, answer: _grepped(folder, question, answer),
    }
    rows = []
    for name, way in ways.items():
        made = [way(question, re.compile(answer)) for question, answer in questions]
        tokens = [count for count, _ in made]
        row = [f"{median(tokens):,.0f}", f"{mean(tokens):,.0f}", f"{max(tokens):,}"]
        rows.append([name, *row, f"{sum(found for _, found in made)} of {len(made)}"])
    about = (
        f"{len(questions)} questions on the documentation and source of ragembed. A tool answers with {_HITS} hits. "
        "If the answer is not in it, the agent reads the hits with `get`, one by one. `rg` gets the two "
        "rarest words of the question; if the answer is not in the output, it reads the file with most matches; at "
        f"most 10,000 tokens of each. Tokens are counted by {_counter()[0]}."
    )
    return Outcome([about, table(["way", "median", "mean", "most", "answered"], rows)])


def _counter() -> tuple[str, Callable[[str], int]]:
    try:
        from bpe_openai import get_encoding
    except ImportError:
        return "the estimate of ragembed", estimated_tokens
    encoding = get_encoding("o200k_base")
    return "o200k_base", lambda text: len(encoding.encode(text))


def _searched(tools: StoreTools, question: str, answer: re.Pattern[str], **more: str) -> tuple[int, bool]:
    count = _counter()[1]
    text = tools.call("search", {"query": question, "k": _HITS, **more}).text
    tokens = count(text)
    places = re.findall(r"^\d+\. (\S+):(\d+)-(\d+)", text, re.MULTILINE)
    while not answer.search(text) and places:
        path, start, end = places.pop(0)
        text = tools.call("get", {"path": path, "start_line": int(start), "end_line": int(end)}).text
        tokens += count(text)
    return tokens, bool(answer.search(text))


def _as_json(tools: StoreTools, question: str, answer: re.Pattern[str]) -> tuple[int, bool]:
    arguments = {"query": question, "k": _HITS, "detail": "full", "structured": True, "max_tokens": 10_000}
    text = json.dumps(tools.call("search", arguments).structured, ensure_ascii=False)
    return _counter()[1](text), bool(answer.search(text))


def _grepped(folder: Path, question: str, answer: re.Pattern[str]) -> tuple[int, bool]:
    count = _counter()[1]
    words = sorted(set(map(str.lower, _WORD.findall(question))), key=lambda word: (_matches(folder, word), word))
    rare = [word for word in words if _matches(folder, word)][:2]
    text = _rg(folder, "-n", "--max-columns=300", "-i", "|".join(rare))[:40_000]
    tokens = count(text)
    if not answer.search(text) and text:
        best = Counter(line.partition(":")[0] for line in text.splitlines()).most_common(1)[0][0]
        text = (folder / best).read_text(encoding="utf-8")[:40_000]
        tokens += count(text)
    return tokens, bool(answer.search(text))


def _matches(folder: Path, word: str) -> int:
    return len(_rg(folder, "-l", "-i", rf"\b{word}").splitlines())


def _rg(folder: Path, *arguments: str) -> str:
    command: Sequence[str] = ["rg", "--no-heading", "--sort=path", *arguments, *FOLDERS]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
