"""``ragembed query --why``: why a file is not among the results."""

from __future__ import annotations

from pathlib import Path

from ragembed.cli.explanation import LEAST, bare, is_word
from ragembed.cli.output import counted, lines_of, print_record, say
from ragembed.cli.searched import namer, open_searched, place_in_store, say_left_out
from ragembed.documents.places import Place
from ragembed.documents.readers.registry import member_of
from ragembed.indexes.search.pipeline import Mode
from ragembed.indexes.search.why_not import FileRank, WhyNot
from ragembed.indexes.types import ChunkRecord
from ragembed.printable import printable_line

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
        places.append(f"page {chunk.page}")
    shown = ", ".join(printable_line(place) for place in places if place)
    return f" (best chunk: {shown})" if shown else ""
