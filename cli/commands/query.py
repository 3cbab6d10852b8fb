"""``ragembed query``, with ``--explain`` and ``--why``."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click

from ragembed.cli.options import (
    FilterOptions,
    PlacePath,
    format_option,
    require_no,
    setting_option,
    shared,
    takes,
    with_number,
    words_of,
)
from ragembed.cli.output import for_terminal, lines_of, link, print_record, print_records, say, say_weak
from ragembed.cli.project import apply_collection, confirm_models
from ragembed.cli.searched import ask, namer, open_searched, place_in_store, say_left_out, searched_options
from ragembed.config.fields import setting
from ragembed.contributions import Contributions, WordShare
from ragembed.documents.places import Place
from ragembed.documents.readers.registry import location_of, member_of
from ragembed.indexes import Fusion, Hit, RankingOptions
from ragembed.indexes.search.explain import Explanation, FileRank, ScorePart, WhyNot
from ragembed.indexes.search.pipeline import Mode
from ragembed.indexes.search.relevance import RelevanceParts, relevance_word
from ragembed.indexes.search.snapshot import FileState
from ragembed.indexes.search.snippet import QueryWords, hit_json, place_json
from ragembed.indexes.types import ChunkRecord
from ragembed.printable import counted, printable, printable_line
from ragembed.reranking import CrossEncoderReranker

WORDS = 6
"""Number of words to list."""

_SHADES = (230, 222, 214)
"""Background colours of the 256-colour palette, from small to large contributions."""
_INK = 16
_LEAST_SHADE = 0.2
LEAST = 5e-4
"""Smaller values round to 0.000 in the output and are left out."""


def explained(explanation: Explanation, place: Callable[[ChunkRecord], str]) -> list[str]:
    """Return the lines that explain a score; ``place`` returns the file and lines of a chunk."""
    lines = []
    if explanation.mode == "lexical":
        lines.append(f"words      {explanation.score:.3f}{_phrases(explanation.phrases)}")
    else:
        if explanation.mode == "hybrid":
            lines += _fusion(explanation, place)
        lines += _words(explanation)
    if explanation.relevance is not None:
        lines.append(f"relevance  {_relevance(explanation.relevance)}")
    if explanation.note is not None:
        lines.append(f"note       {explanation.note}")
    return [printable_line(line) for line in lines]


def shaded(body: str, explanation: Explanation) -> str:
    """Return ``body``, a part of the chunk's text, with the words that contribute most on a coloured background."""
    found = explanation.contributions
    at = explanation.hit.chunk.text.find(body)
    if found is None or at < 0:
        return printable(body)
    shown, end = "", 0
    for start, stop, level in _levels(found, explanation.origins, at, len(body)):
        if start >= end:
            word = printable(body[start:stop])
            shown += printable(body[end:start]) + click.style(word, fg=_INK, bg=_SHADES[level])
            end = stop
    return shown + printable(body[end:])


def _levels(
    found: Contributions, origins: Sequence[tuple[int, int] | None], offset: int, length: int
) -> list[tuple[int, int, int]]:
    """Return start, end and shade of the words to shade among ``length`` characters from ``offset``, in order."""
    by_word = found.of_words()
    values = by_word.pairs.sum(axis=0).tolist()
    most = max(
        [value for word, value in zip(by_word.document, values, strict=True) if word.origin == "text"], default=0
    )
    levels = []
    for word, value in zip(by_word.document, values, strict=True):
        if word.start is None or word.end is None or most <= 0 or value < _LEAST_SHADE * most or not is_word(word.text):
            continue
        share = (value / most - _LEAST_SHADE) / (1 - _LEAST_SHADE)
        level = min(int(share * len(_SHADES)), len(_SHADES) - 1)
        first, last = origins[word.start], origins[word.end - 1]
        if first is not None and last is not None and offset <= first[0] < last[1] <= offset + length:
            levels.append((first[0] - offset, last[1] - offset, level))
    return sorted(levels)


def _fusion(explanation: Explanation, place: Callable[[ChunkRecord], str]) -> list[str]:
    dense, lexical = explanation.dense, explanation.lexical
    if dense is None or lexical is None:
        return []
    places = {record.id: place(record) for record in explanation.towards}
    own = sum(term.value for term in explanation.terms if term.kind == "query")
    feedback = [f"{places[term.name]} {term.value:+.3f}" for term in explanation.terms if term.kind == "feedback"]
    hubness = sum(term.value for term in explanation.terms if term.kind == "hubness")
    score = "cosine less hubness" if hubness else "cosine"
    lines = [f"meaning    {dense.value:+.3f} = {dense.weight:g} of {_scaled(score, dense, explanation.candidates)}"]
    if feedback:
        lines.append(f"             the query itself {own:+.3f}; moved towards {', '.join(feedback)}")
    if hubness:
        lines.append(f"             near many queries {hubness:+.3f}")
    lines.append(
        f"words      {lexical.value:+.3f} = {lexical.weight:.3g} of "
        f"{_scaled('BM25', lexical, explanation.candidates)}{_phrases(explanation.phrases)}"
    )
    if (shared := explanation.shared) is not None:
        best = ", ".join(map(place, explanation.like))
        lines.append(
            f"shared     {shared.value:+.3f} = {shared.weight:.3g} of "
            f"{_scaled('words in common', shared, explanation.candidates)}: with {best}"
        )
    return lines


def _relevance(parts: RelevanceParts) -> str:
    """Return the relevance and its parts, on the scale of the logarithm of the odds."""
    known = []
    if parts.of_cosine and parts.cosine is not None:
        known.append(f"cosine {parts.cosine:.3f} gives {parts.of_cosine:+.2f}")
    if parts.matched is not None and parts.highest is not None:
        known.append(f"BM25, {parts.matched:.0%} of the highest possible {parts.highest:.1f}, {parts.of_matched:+.2f}")
    part = f"; weight of the cosine {parts.read:.2f}, because the model cannot read the whole query"
    unread = "" if parts.read == 1 else part
    return f"{parts.value:.2f}: {'; '.join(known)}; origin {parts.origin:+.2f}{unread}"


def _scaled(name: str, part: ScorePart, candidates: int | None) -> str:
    if part.rank is not None:
        return f"{name} {part.score:.3f}, rank {part.rank} of {candidates:,} candidates"
    if part.line is None:
        return f"{name} {part.score:.3f}, the same for all candidates"
    return f"({name} {part.score:.3f} - {part.line.origin:.3f}) / {part.line.unit:.3f}, over {candidates:,} candidates"


def _phrases(phrases: Mapping[str, float]) -> str:
    best = sorted(((phrase, score) for phrase, score in phrases.items() if score >= LEAST), key=lambda item: -item[1])
    counted = ": " + ", ".join(f"{bare(phrase)} {score:.3f}" for phrase, score in best) if best else ""
    common = [bare(phrase) for phrase, score in phrases.items() if score < LEAST]
    return counted + (f"; too common to count: {', '.join(common)}" if common else "")


def _words(explanation: Explanation) -> list[str]:
    found = explanation.contributions
    if found is None:
        return []
    named = "cosine" if explanation.unit == "cosine" or explanation.mode == "dense" else "query"
    lines = [f"{named:<10} {found.score:+.3f}, by words: {_listed(found.document_words())}"]
    if found.carriers and all(token.origin != "text" for token in found.carriers):
        names = ", ".join(token.text for token in found.carriers)
        lines.append(f"{'':<10} the chunk's vector comes from {names} alone: no values for single words")
    if not found.additive or abs(found.residual) > LEAST:
        lines.append(f"             residual, not part of any pair of words: {found.residual:+.3f}")
    return lines


def _listed(words: Sequence[WordShare]) -> str:
    """Return the words that contribute most, each with the word of the query that contributes most to it."""
    named = [s for s in words if s.origin == "text" and is_word(s.word) and s.value >= LEAST][:WORDS]
    return ", ".join(f"{share.word} {share.value:.3f} ← {share.best}" for share in named) or "none"


def bare(phrase: str) -> str:
    """Return a phrase without the punctuation around it."""
    at = [i for i, character in enumerate(phrase) if character.isalnum()]
    return phrase[at[0] : at[-1] + 1] if at else phrase


def is_word(text: str) -> bool:
    """Return whether ``text`` contains a letter or digit."""
    return any(map(str.isalnum, text))


_NOUNS = {"hybrid": "score", "dense": "cosine", "lexical": "BM25"}
_WORDS = 8


def explain_absence(
    query: str, file: Place, count: int, mode: Mode, store: Path | None, collections: str | None, output: str
) -> None:
    """Print the rank of a file in each search mode, and the words of the query that score lower in it than in hits."""
    with open_searched(store, collections) as opened:
        name, source = place_in_store(opened, file)
        found = opened.why_not(query, source, count, mode, store=name)
        say_left_out(opened)
        shown = namer(opened)(found.source, name)
    about = {"query": query, "path": shown, "k": count, **({} if name is None else {"store": name})}
    if not print_record({**about, **found.to_dict()}, output):
        _print(found, shown, count)


def _print(found: WhyNot, shown: str, count: int) -> None:
    rank = found.rank_in_mode.rank
    place = f"rank {rank}" if rank is not None else "not found"
    inside = "" if rank is None else f", {'among' if rank <= count else 'not among'} the first {count}"
    say(f"{shown}: {place}{inside} ({found.mode}; {counted(found.chunks, 'chunk')})")
    for standing in found.ranks:
        say(f"  {standing.mode:<8} {_rank_line(standing, count)}")
    phrases = [each for each in found.phrases if each.results - each.here >= LEAST]
    words = [each for each in found.words if each.results - each.here >= LEAST and is_word(each.word)]
    compared = (
        f"score lower in the file{_lines(found.chunk)} than in the {counted(found.results, 'result')} from other files"
    )
    say(f"Words of the query that {compared}:" if phrases or words else f"No words of the query {compared}.")
    for phrase in phrases[:_WORDS]:
        elsewhere = "" if phrase.here else ", elsewhere in the file" if phrase.in_file else ", not in the file"
        say(
            f"  {bare(phrase.phrase):<16} BM25 {phrase.here:.3f}, results {phrase.results:.3f} on average; in "
            f"{phrase.found_in} of {counted(found.results, 'result')}{elsewhere}"
        )
    for word in words[:_WORDS]:
        say(f"  {word.word:<16} cosine {word.here:+.3f}, results {word.results:+.3f} on average")
    if found.note is not None:
        say(f"note: {found.note}", err=True)


def _rank_line(standing: FileRank, count: int) -> str:
    noun = _NOUNS[standing.mode]
    needed = "" if standing.needed is None else f"; result {min(count, standing.of)} has {standing.needed:.3f}"
    among = " candidates" if standing.mode == "hybrid" else " chunks"
    if standing.rank is not None:
        return f"rank {standing.rank:,} of {standing.of:,}{among}, {noun} {standing.score:.3f}{needed}"
    if standing.mode == "lexical":
        return f"the file contains no word of the query{needed}"
    would = "" if standing.score is None else f"; on their scale, its score would be {standing.score:.3f}"
    return f"not among the {standing.of:,} candidates{would}{needed}"


def _lines(record: ChunkRecord) -> str:
    chunk = record.chunk
    places = [member_of(record.source, chunk.metadata)]
    if chunk.start_line is not None and chunk.end_line is not None:
        places.append(lines_of(chunk.start_line, chunk.end_line))
    elif chunk.page is not None:
        places.append(location_of("", None, None, chunk.page, chunk.end_page).removeprefix(", "))
    shown = ", ".join(printable_line(place) for place in places if place)
    return f" (best chunk: {shown})" if shown else ""


_NO_HITS_EXIT = 1
_MMR, _MMR_LAMBDA = "--mmr", 0.5
_MOST_PLACES = 5
_NOT_EXPLAINED = (
    *("alpha", "method", "feedback", "dedupe", "per_file", "mmr", "rerank", "rerank_depth", "min_relevance", "refresh"),
    *("explain", "paths_only", "where", "globs", "match"),
)
"""Parameters that ``--why`` does not use."""


class RankingCommand(click.Command):
    """A command that accepts ``--mmr`` and ``--mmr LAMBDA``, and has the settings of the searched collection."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; ``--mmr`` without a number gets the default."""
        rest = super().parse_args(ctx, with_number(args, _MMR, _MMR_LAMBDA))
        if not ctx.resilient_parsing:
            confirm_models(ctx)
            apply_collection(ctx)
        return rest


@dataclass(frozen=True, slots=True)
class _QueryRanking:
    """The options that order and combine results."""

    dedupe: bool = setting(
        True, "Combine near-duplicates into one result, the one with the best score.", "--dedupe/--no-dedupe"
    )
    per_file: int | None = setting(
        None, "Return at most N chunks per file.", "--per-file", "N", least=1, default="no limit"
    )
    mmr: float | None = setting(
        None,
        "Diversify the results (maximal marginal relevance), from 0 (most diverse) to 1 (order by score). LAMBDA is "
        f"{_MMR_LAMBDA:g} if you leave it out.",
        *(_MMR, "[LAMBDA]"),
        default="off",
        least=0.0,
        most=1.0,
    )
    rerank: str | None = setting(
        None,
        "Cross-encoder model that reads the query with each of the best results and reorders them; needs "
        "ragembed[torch].",
        *("--rerank", "ID|PATH"),
        default="off",
    )
    rerank_depth: int = setting(
        RankingOptions().rerank_depth, "Number of results that --rerank reorders.", "--rerank-depth", "N", least=1
    )


@click.command(name="query", cls=RankingCommand)
@click.argument("query", nargs=-1, required=True, metavar="QUERY...")
@click.option(
    "-k", "count", type=click.IntRange(1), metavar="N", default=10, show_default=True, help="Number of results."
)
@shared("mode")
@setting_option(Fusion, "alpha", default=f"the store's, else {Fusion().alpha:g}")
@setting_option(Fusion, "method", default=f"the store's, else {Fusion().method}")
@setting_option(Fusion, "feedback", default=f"the store's, else {Fusion().feedback:g}")
@takes(_QueryRanking)
@shared("min_relevance", "refresh")
@click.option("--files", "paths_only", is_flag=True, help="Print only the paths of the best files, one per line.")
@click.option("--explain", is_flag=True, help="Show how each score is made up, down to single words.")
@click.option(
    "--why", type=PlacePath(), metavar="FILE", help="Explain why FILE is not among the results, and its rank."
)
@takes(FilterOptions, "selection")
@searched_options
@format_option
def command(
    query: tuple[str, ...],
    count: int,
    mode: Mode,
    min_relevance: float | None,
    refresh: bool,
    paths_only: bool,
    explain: bool,
    why: Place | None,
    store: Path | None,
    collections: str | None,
    output: str,
    options: _QueryRanking,
    selection: FilterOptions,
    **fusion: Any,
) -> None:
    """Search a store.

    \b
    ragembed query how are stores locked
    ragembed query '"index factory" string' --mode lexical --path 'docs/guide*'
    ragembed query release notes -k 3 --where "ext = 'md'" --json
    ragembed query lock timeout --match 'Error [0-9]+' --files
    ragembed query how are stores locked --why docs/reliability.md

    Prints each result with its file, lines, score and a snippet, best first. Scores order the results of one query; a
    strong match probably answers it, a weak match does not. --json has the relevance, a number from 0 to 1. A result
    whose file was changed or deleted since it was indexed says so, and shows the old text: --refresh updates the store
    first. Double quotes inside QUERY search for a phrase: words in this order.

    --why prints the rank of FILE in each search mode, and the words of QUERY that score lower in the best chunk of FILE
    than in the results from other files.

    Exit status: 0 with results or --why, 1 without, 2 for an error, such as a FILE that is not in the store.
    """
    text = words_of(query)
    if why is not None:
        require_no(_NOT_EXPLAINED, "--why")
        explain_absence(text, why, count, mode, store, collections, output)
        return
    if paths_only:
        require_no(("per_file", "explain"), "--files")
        options = replace(options, per_file=1)
    reranker = None if options.rerank is None else CrossEncoderReranker(options.rerank)
    steps = {name: value for name, value in asdict(options).items() if name != "rerank"}
    ranking = RankingOptions(reranker=reranker, **steps)
    settings: dict[str, Any] = {"where": selection.condition, "ranking": ranking, "min_relevance": min_relevance}
    changes = {name: value for name, value in fusion.items() if value is not None}
    with open_searched(store, collections, refresh=refresh) as opened:

        def run_query() -> tuple[list[Hit], list[FileState | None], list[Explanation], str]:
            if changes:
                settings["fusion"] = replace(opened.fusion, **changes)
            explanations = opened.explain(text, count, mode, **settings) if explain else []
            hits = [each.hit for each in explanations] if explain else opened.search(text, count, mode, **settings)
            return hits, opened.file_states(hits), explanations, opened.language

        (hits, states, explanations, language), notes = ask(opened, mode, settings["where"], run_query)
        name_file = namer(opened)
    words = QueryWords(text, [hit.chunk.text for hit in hits], language)

    numbered = enumerate(zip(hits, states, strict=True), 1)
    results = [hit_json(rank, hit, words, name_file, state) for rank, (hit, state) in numbered]
    for result, explanation in zip(results, explanations, strict=False):
        result["explanation"] = explanation.to_dict()
    for result in results if output != "text" else ():
        snippet = result.pop("snippet")
        at = result["text"].find(snippet)
        result["snippet_at"] = [at, at + len(snippet)]
    about = {"query": text, "mode": mode, **notes}
    if paths_only:
        _print_files(about, results, states, output)
    elif not print_records({**about, "results": results}, "results", output):
        coloured = for_terminal()
        for result, state, explanation in zip_longest(results, states, explanations):
            _print_hit(result, words, coloured, state, explanation, name_file)
    say_weak(hit.relevance for hit in hits)
    if not hits:
        say("no results" if min_relevance is None else f"no results with relevance {min_relevance:g} or more", err=True)
        raise click.exceptions.Exit(_NO_HITS_EXIT)


def _print_files(
    about: dict[str, Any], results: Sequence[dict[str, Any]], states: Sequence[FileState | None], output: str
) -> None:
    if count := sum(result["path"] is None for result in results):
        say(f"note: {counted(count, 'result')} from no file", err=True)
    paths = {result["path"]: state for result, state in zip(results, states, strict=True) if result["path"]}
    if not print_records({**about, "files": [{"path": path} for path in paths]}, "files", output):
        for path, state in paths.items():
            say(path)
            if state is not None:
                say(f"note: {path}: {state} since it was indexed", err=True)


def _print_hit(
    result: dict[str, Any],
    words: QueryWords,
    coloured: bool,
    state: FileState | None,
    explanation: Explanation | None,
    name_file: Callable[[str, str | None], str],
) -> None:
    place = _place(result)
    above = printable_line(" > ".join(result["headings"]) or result["title"] or "")
    body = printable(result["snippet"])
    if coloured:
        if explanation is None or explanation.contributions is None:
            body = _highlighted(body, words)
        else:
            body = shaded(result["snippet"], explanation)
        place = click.style(place, fg="magenta", bold=True)
        if result["path"] is not None:
            place = link(place, result["path"])
        above = above and click.style(above, fg="cyan")
    score = f"{result['score']:.3f}" + ("" if result["rerank"] is None else f", rerank {result['rerank']:.3f}")
    word = relevance_word(result["relevance"])
    score += "" if word is None else f", {word} match"
    score += f", in {result['store']}" if "store" in result else ""
    score += "" if state is None else f", {state} since it was indexed"
    click.echo("  ".join(part for part in (place, above, f"({score})") if part))
    click.echo(textwrap.indent(body, "    ", lambda _: True), color=True if coloured else None)
    if result["duplicates"]:
        click.echo("    " + _near_duplicates([_place(duplicate) for duplicate in result["duplicates"]]))
    click.echo()
    if explanation is not None:
        for line in explained(explanation, lambda record: _place(place_json(record, name_file))):
            say(f"    {line}")
        click.echo()


def _near_duplicates(places: Sequence[str]) -> str:
    """Return a line such as ``and 2 near-duplicates: docs/a.md:3-9, docs/b.md:1-7`` with a limited number of places."""
    shown = ", ".join([*places[:_MOST_PLACES], *(["…"] if len(places) > _MOST_PLACES else [])])
    return f"and {len(places):,} near-duplicate{'s' if len(places) > 1 else ''}: {shown}"


def _place(result: dict[str, Any]) -> str:
    path = printable_line(str(result["path"] or result.get("metadata", {}).get("source") or result["id"]))
    if "member" in result:
        path = f"{path}: {printable_line(result['member'])}"
    return location_of(path, result["start_line"], result["end_line"], result["page"], None)


def _highlighted(text: str, words: QueryWords) -> str:
    shown, end = "", 0
    for start, stop in words.places(text):
        shown += text[end:start] + click.style(text[start:stop], fg="yellow", bold=True)
        end = stop
    return shown + text[end:]
