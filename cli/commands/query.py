"""``ragembed query``."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragembed.cli.options import (
    PlacePath,
    filter_options,
    format_option,
    min_relevance_option,
    mode_option,
    refresh_option,
    require_no,
    search_filter,
    setting_option,
    store_option,
    with_number,
)
from ragembed.cli.output import for_terminal, link, print_records, say, say_unfinished, say_weak
from ragembed.cli.project import apply_collection, confirm_models
from ragembed.cli.searched import (
    filter_notes,
    in_option,
    namer,
    open_searched,
    say_left_out,
    say_notes,
)
from ragembed.documents.places import Place
from ragembed.indexes import Fusion, Hit, RankingOptions
from ragembed.indexes.search.fusion import Method
from ragembed.indexes.search.pipeline import Mode
from ragembed.indexes.search.relevance import collected_notes, strength
from ragembed.indexes.search.snippet import QueryWords, hit_json, place_json
from ragembed.indexes.storage.file_states import FileState
from ragembed.printable import printable, printable_line
from ragembed.reranking import CrossEncoderReranker

if TYPE_CHECKING:
    from ragembed.indexes.search.explain import Explanation

_NO_HITS_EXIT = 1
_MMR, _MMR_LAMBDA = "--mmr", 0.5
_MOST_PLACES = 5
_NOT_EXPLAINED = (
    *("alpha", "method", "feedback", "dedupe", "per_file", "mmr", "rerank", "rerank_depth", "min_relevance", "refresh"),
    *("explain", "where", "globs"),
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


@click.command(name="query", cls=RankingCommand)
@click.argument("query")
@click.option(
    "-k", "count", type=click.IntRange(1), metavar="N", default=10, show_default=True, help="Number of results."
)
@mode_option
@setting_option(Fusion, "alpha", default=f"the store's, else {Fusion().alpha:g}")
@setting_option(Fusion, "method", default=f"the store's, else {Fusion().method}")
@setting_option(Fusion, "feedback", default=f"the store's, else {Fusion().feedback:g}")
@click.option(
    "--dedupe/--no-dedupe",
    default=True,
    show_default=True,
    help="Combine near-duplicates into one result, the one with the best score.",
)
@click.option(
    "--per-file", type=click.IntRange(1), metavar="N", help="Return at most N chunks per file.  [default: no limit]"
)
@click.option(
    _MMR,
    type=click.FloatRange(0.0, 1.0),
    metavar="[LAMBDA]",
    help="Diversify the results (maximal marginal relevance), from 0 (most diverse) to 1 (order by score). LAMBDA is "
    f"{_MMR_LAMBDA:g} if you leave it out.  [default: off]",
)
@click.option(
    "--rerank",
    metavar="ID|PATH",
    help="Cross-encoder model that reads the query with each of the best results and reorders them; needs "
    "ragembed[torch].  [default: off]",
)
@click.option(
    "--rerank-depth",
    type=click.IntRange(1),
    metavar="N",
    default=RankingOptions().rerank_depth,
    show_default=True,
    help="Number of results that --rerank reorders.",
)
@min_relevance_option
@refresh_option
@click.option("--explain", is_flag=True, help="Show how each score is made up, down to single words.")
@click.option(
    "--why", type=PlacePath(), metavar="FILE", help="Explain why FILE is not among the results, and its rank."
)
@filter_options
@store_option
@in_option
@format_option
def command(
    query: str,
    count: int,
    mode: Mode,
    alpha: float | None,
    method: Method | None,
    feedback: float | None,
    min_relevance: float | None,
    refresh: bool,
    explain: bool,
    why: Place | None,
    where: str | None,
    globs: tuple[str, ...],
    store: Path | None,
    collections: str | None,
    output: str,
    rerank: str | None,
    **ranking_values: Any,
) -> None:
    """Search a store.

    \b
    ragembed query "how are stores locked?"
    ragembed query '"index factory" string' --mode lexical --path 'docs/guide*'
    ragembed query "release notes" -k 3 --where "ext = 'md'" --json
    ragembed query "how are stores locked?" --why docs/reliability.md

    Prints each result with its file, lines, score and a snippet, best first. Scores order the results of one query; a
    strong match probably answers it, a weak match does not. --json has the relevance, a number from 0 to 1. A result
    whose file was changed or deleted since it was indexed says so, and shows the old text: --refresh updates the store
    first. Double quotes inside QUERY search for a phrase: words in this order.

    --why prints the rank of FILE in each search mode, and the words of QUERY that score lower in the best chunk of FILE
    than in the results from other files.

    Exit status: 0 with results or --why, 1 without, 2 for an error, such as a FILE that is not in the store.
    """  # noqa: D301  click reads the backspace character as "do not wrap"
    if not query.strip():
        raise click.BadParameter("the query is empty: expected at least one word", param_hint="QUERY")
    if why is not None:
        from ragembed.cli.explain import explain_absence

        require_no(_NOT_EXPLAINED, "--why")
        explain_absence(query, why, count, mode, store, collections, output)
        return
    condition = search_filter(where, globs)
    given: dict[str, Any] = {"method": method, "alpha": alpha, "feedback": feedback}
    ranking = RankingOptions(reranker=None if rerank is None else CrossEncoderReranker(rerank), **ranking_values)
    changes = {name: value for name, value in given.items() if value is not None}
    with open_searched(store, collections, refresh=refresh) as opened:

        def run_query() -> tuple[list[Hit], list[FileState | None], list[Explanation], list[str], bool, str]:
            fusion = replace(opened.fusion, **changes) if changes else None
            settings: dict[str, Any] = {"where": condition, "fusion": fusion, "ranking": ranking}
            settings["min_relevance"] = min_relevance
            explanations = opened.explain(query, count, mode, **settings) if explain else []
            hits = [each.hit for each in explanations] if explain else opened.search(query, count, mode, **settings)
            noted = filter_notes(opened, condition)
            return hits, opened.file_states(hits), explanations, noted, opened.unfinished, opened.language

        with collected_notes() as collected:
            hits, states, explanations, noted, unfinished, language = opened.read(run_query)
        being_written = unfinished and opened.being_written
        notes = say_notes([*noted, *collected])
        say_left_out(opened, mode)
        name_file = namer(opened)
    words = QueryWords(query, [hit.chunk.text for hit in hits], language)

    numbered = enumerate(zip(hits, states, strict=True), 1)
    results = [hit_json(rank, hit, words, name_file, state) for rank, (hit, state) in numbered]
    for result, explanation in zip(results, explanations, strict=False):
        result["explanation"] = explanation.to_dict()
    if not print_records({"query": query, "mode": mode, **notes, "results": results}, "results", output):
        coloured = for_terminal()
        for result, state, explanation in zip_longest(results, states, explanations):
            _print_hit(result, words, coloured, state, explanation)
            if explanation is not None:
                from ragembed.cli.explain import explained

                for line in explained(explanation, lambda record: _place(place_json(record, name_file))):
                    say(f"    {line}")
                click.echo()
    if unfinished:
        say_unfinished(being_written=being_written)
    say_weak(hit.relevance for hit in hits)
    if not hits:
        say("no results" if min_relevance is None else f"no results with relevance {min_relevance:g} or more", err=True)
        raise click.exceptions.Exit(_NO_HITS_EXIT)


def _print_hit(
    result: dict[str, Any],
    words: QueryWords,
    coloured: bool,
    state: FileState | None,
    explanation: Explanation | None = None,
) -> None:
    place = _place(result)
    above = printable_line(" > ".join(result["headings"]) or result["title"] or "")
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
    score = f"{result['score']:.3f}" + ("" if result["rerank"] is None else f", rerank {result['rerank']:.3f}")
    score += "" if result["relevance"] is None else f", {strength(result['relevance'])} match"
    score += f", in {result['store']}" if "store" in result else ""
    score += "" if state is None else f", {state} since it was indexed"
    click.echo("  ".join(part for part in (place, above, f"({score})") if part))
    click.echo(textwrap.indent(body, "    ", lambda _: True), color=True if coloured else None)
    if result["duplicates"]:
        click.echo("    " + _near_duplicates([_place(duplicate) for duplicate in result["duplicates"]]))
    click.echo()


def _near_duplicates(places: Sequence[str]) -> str:
    """Return a line such as ``and 2 near-duplicates: docs/a.md:3-9, docs/b.md:1-7`` with a limited number of places."""
    shown = ", ".join([*places[:_MOST_PLACES], *(["…"] if len(places) > _MOST_PLACES else [])])
    return f"and {len(places):,} near-duplicate{'s' if len(places) > 1 else ''}: {shown}"


def _place(result: dict[str, Any]) -> str:
    path = printable_line(str(result["path"] or result.get("metadata", {}).get("source") or result["id"]))
    if "member" in result:
        path = f"{path}: {printable_line(result['member'])}"
    if result["start_line"] is not None:
        return f"{path}:{result['start_line']}-{result['end_line']}"
    return path if result["page"] is None else f"{path}, page {result['page']}"


def _highlighted(text: str, words: QueryWords) -> str:
    shown, end = "", 0
    for start, stop in words.places(text):
        shown += text[end:start] + click.style(text[start:stop], fg="yellow", bold=True)
        end = stop
    return shown + text[end:]
