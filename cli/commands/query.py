"""``ragembed query``."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragembed.cli.options import (
    FilterOptions,
    PlacePath,
    format_option,
    query_text,
    require_no,
    setting_option,
    shared,
    takes,
    with_number,
)
from ragembed.cli.output import for_terminal, link, print_record, say, say_weak
from ragembed.cli.project import apply_collection, confirm_models
from ragembed.cli.searched import ask, namer, open_searched, searched_options
from ragembed.config.fields import setting
from ragembed.documents.places import Place
from ragembed.documents.readers.registry import location_of
from ragembed.indexes import Fusion, Hit, RankingOptions
from ragembed.indexes.search.pipeline import Mode
from ragembed.indexes.search.relevance import relevance_word
from ragembed.indexes.search.snapshot import FileState
from ragembed.indexes.search.snippet import QueryWords, cuts, hit_json, place_json
from ragembed.printable import counted, printable, printable_line
from ragembed.reranking import ModelReranker

if TYPE_CHECKING:
    from ragembed.indexes.search.explain import Explanation

_MMR, _MMR_LAMBDA = "--mmr", 0.5
_MOST_PLACES = 5
_NOT_EXPLAINED = (
    *("alpha", "method", "feedback", "dedupe", "per_file", "mmr", "rerank", "rerank_depth", "min_relevance", "refresh"),
    *("explain", "verbose", "paths_only", "where", "globs", "match"),
)
"""Parameters that ``--why`` does not use."""


class RankingCommand(click.Command):
    """A command that accepts ``--mmr`` and ``--mmr LAMBDA``, and has the settings of the searched collection."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; ``--mmr`` without a number gets the default."""
        remaining = super().parse_args(ctx, with_number(args, _MMR, _MMR_LAMBDA))
        if not ctx.resilient_parsing:
            confirm_models(ctx)
            apply_collection(ctx)
        return remaining


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
        "Cross-encoder or multi-vector model (ColBERT) that compares the query with each of the best results and "
        "reorders them; needs the extra torch.",
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
@click.option("--explain", is_flag=True, help="Show why each result was found: words, meaning, likeness to the best.")
@click.option("-v", "--verbose", is_flag=True, help="With --explain: show how each part of a score is computed.")
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
    verbose: bool,
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
    strong match probably answers it, a weak match does not. --json has the relevance, a number from 0 to 1. Without it,
    as in a store of less than 20 chunks, --explain says why. A result whose file was changed or deleted since it was
    indexed says so, and shows the old text: --refresh updates the store first. Double quotes inside QUERY search for a
    phrase: words in this order.

    --why prints the rank of FILE in each search mode, and the words of QUERY that score lower in the best chunk of FILE
    than in the results from other files.

    Exit status: 0 with results or --why, 1 without, 2 for an error, such as a FILE that is not in the store.
    """
    text = query_text(query)
    if why is not None:
        from ragembed.cli.explain import explain_absence

        require_no(_NOT_EXPLAINED, "--why")
        explain_absence(text, why, count, mode, store, collections, output)
        return
    if paths_only:
        require_no(("per_file", "explain"), "--files")
        options = replace(options, per_file=1)
    reranker = None if options.rerank is None else ModelReranker(options.rerank)
    steps = {name: value for name, value in asdict(options).items() if name != "rerank"}
    ranking = RankingOptions(reranker=reranker, **steps)
    least = 0.0 if explain and min_relevance is None else min_relevance  # with 0, a note says why it is unknown
    settings: dict[str, Any] = {"where": selection.condition, "ranking": ranking, "min_relevance": least}
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
        del result["snippet"]
    about = {"query": text, "mode": mode, **notes}
    if paths_only:
        _print_files(about, results, states, output)
    elif not print_record({**about, "results": results}, output, "results"):
        coloured = for_terminal()
        for result, state, explanation in zip_longest(results, states, explanations):
            _print_hit(result, words, coloured, state, explanation, name_file, verbose)
    say_weak(hit.relevance for hit in hits)
    # A store whose relevance is fitted has enough chunks to fill the results.
    if len(hits) == count and hits[0].relevance is None and opened.being_written and opened.awaits_relevance:
        say("note: the store is being finished: how relevant the results are is not known yet", err=True)
    if not hits:
        say("no results" if min_relevance is None else f"no results with relevance {min_relevance:g} or more", err=True)
        raise click.exceptions.Exit(1)


def _print_files(
    about: dict[str, Any], results: Sequence[dict[str, Any]], states: Sequence[FileState | None], output: str
) -> None:
    if count := sum(result["path"] is None for result in results):
        say(f"note: {counted(count, 'result')} from no file", err=True)
    paths = {result["path"]: state for result, state in zip(results, states, strict=True) if result["path"]}
    if not print_record({**about, "files": [{"path": path} for path in paths]}, output, "files"):
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
    verbose: bool,
) -> None:
    place = _place(result)
    above = printable_line(" > ".join(result["headings"][1 if "sheet" in result else 0 :]) or result["title"] or "")
    body = printable(result["snippet"])
    if coloured:
        if explanation is None or explanation.contributions is None:
            body = _highlighted(body, words)
        else:
            from ragembed.cli.explain import shaded

            body = shaded(result["snippet"], explanation)
        place = click.style(place, fg="magenta", bold=True)
        if result["path"] is not None:
            place = link(place, result["path"])
        above = above and click.style(above, fg="cyan")
    body = body.join(cuts(result["text"], result["snippet"]))
    score = f"{result['score']:.3f}" + ("" if result["rerank"] is None else f", rerank {result['rerank']:.3f}")
    word = relevance_word(result["relevance"])
    score += "" if word is None else f", {word} match"
    score += f", in {result['store']}" if "store" in result else ""
    score += "" if state is None else f", {state} since it was indexed"
    click.echo("  ".join(part for part in (place, above, f"({score})") if part))
    click.echo(textwrap.indent(body, "    ", lambda _: True), color=True if coloured else None)
    if result["duplicates"]:
        places = [_place(duplicate) for duplicate in result["duplicates"]]
        shown = ", ".join([*places[:_MOST_PLACES], *(["…"] if len(places) > _MOST_PLACES else [])])
        click.echo(f"    and {counted(len(places), 'near-duplicate')}: {shown}")
    click.echo()
    if explanation is not None:
        from ragembed.cli.explain import explained

        for line in explained(explanation, lambda record: _place(place_json(record, name_file)), verbose=verbose):
            say(f"    {line}")
        click.echo()


def _place(result: dict[str, Any]) -> str:
    path = printable_line(str(result["path"] or result.get("metadata", {}).get("source") or result["id"]))
    if "member" in result:
        path = f"{path}: {printable_line(result['member'])}"
    sheet = printable_line(result["sheet"]) if "sheet" in result else None
    return location_of(path, result["start_line"], result["end_line"], result["page"], None, sheet)


def _highlighted(text: str, words: QueryWords) -> str:
    shown, end = "", 0
    for start, stop in words.places(text):
        shown += text[end:start] + click.style(text[start:stop], fg="yellow", bold=True)
        end = stop
    return shown + text[end:]
