"""``ragembed query --explain`` and ``--why``: how a score is made up, and why a file is not among the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from ragembed.cli.output import counted, print_record, say
from ragembed.cli.searched import namer, open_searched, place_in_store, say_left_out
from ragembed.contributions import Contributions, WordShare
from ragembed.documents.places import Place
from ragembed.documents.readers.registry import member_of, places_in
from ragembed.indexes.search.explain import Explanation, FileRank, ScorePart
from ragembed.indexes.search.pipeline import Mode
from ragembed.indexes.search.relevance import RelevanceParts, relevance_word
from ragembed.indexes.types import ChunkRecord
from ragembed.languages import unmarked_words_among
from ragembed.printable import printable, printable_line

WORDS = 6
"""Number of words to list."""

_SHADES = (230, 222, 214)
"""Background colours of the 256-colour palette, from small to large contributions."""
_INK = 16
_LEAST_SHADE = 0.2
LEAST = 5e-4
"""Smaller values round to 0.000 in the output and are left out."""


def explained(explanation: Explanation, place: Callable[[ChunkRecord], str], *, verbose: bool = False) -> list[str]:
    """Return the lines that explain a score; ``place`` returns the file and lines of a chunk."""
    lines = _numbers(explanation, place) if verbose else _reasons(explanation, place)
    if explanation.note is not None:
        lines.append(f"note       {explanation.note}")
    return [printable_line(line) for line in lines]


def _reasons(explanation: Explanation, place: Callable[[ChunkRecord], str]) -> list[str]:
    """Return what matched, a line for each part of the score; the parts of a hybrid score add up to it."""
    best = sorted(explanation.phrases.items(), key=lambda item: -item[1])
    matched = ", ".join(bare(phrase) for phrase, score in best if score >= LEAST) or "none of the query's words counts"
    cosine = explanation.hit.dense
    near = [] if cosine is None else [f"cosine {cosine:.2f} with the query"]
    if explanation.contributions is not None:
        shares = explanation.contributions.document_words()
        plain = unmarked_words_among([share.word for share in shares], "")
        nearest = _largest([share for share in shares if share.word not in plain])
        near += [f"closest words {', '.join(share.word for share in nearest)}"] if nearest else []
    if explanation.mode == "lexical":
        lines = [f"words      {matched}"]
    elif explanation.dense is None or explanation.lexical is None:
        lines = [f"meaning    {', '.join(near)}"]
    else:
        moved = [term for term in explanation.terms if term.kind == "feedback"]
        feedback = sum(term.value for term in moved) + (explanation.shared.value if explanation.shared else 0.0)
        words = explanation.lexical.value
        lines = [
            f"words      {words:+.2f}: {matched}",
            f"meaning    {explanation.score - words - feedback:+.2f}: {', '.join(near)}",
        ]
        if feedback:
            candidates = {record.id: place(record) for record in (*explanation.towards, *explanation.like)}
            own = candidates.pop(explanation.hit.id, None)
            like = ", ".join(dict.fromkeys(candidates.values()))
            reason = f"like the best candidates, {like}" if own is None else "one of the best candidates"
            if own is not None and like:
                reason += f", and like the others, {like}"
            lines.append(f"feedback   {feedback:+.2f}: {reason}")
    if explanation.relevance is not None:
        value = explanation.relevance.value
        lines.append(f"relevance  {value:.2f}, a {relevance_word(value)} match")
    return lines


def _numbers(explanation: Explanation, place: Callable[[ChunkRecord], str]) -> list[str]:
    """Return how each part of the score is computed."""
    lines = []
    if explanation.mode == "lexical":
        lines.append(f"words      {explanation.score:.3f}{_phrases(explanation.phrases)}")
    else:
        if explanation.mode == "hybrid":
            lines += _fusion(explanation, place)
        lines += _words(explanation)
    if explanation.relevance is not None:
        lines.append(f"relevance  {_relevance(explanation.relevance)}")
    return lines


def shaded(body: str, explanation: Explanation) -> str:
    """Return ``body``, a part of the chunk's text, with the words that contribute most on a coloured background."""
    contributed = explanation.contributions
    at = explanation.hit.chunk.text.find(body)
    if contributed is None or at < 0:
        return printable(body)
    shown, end = "", 0
    for start, stop, level in _levels(contributed, explanation.origins, at, len(body)):
        if start >= end:
            word = printable(body[start:stop])
            shown += printable(body[end:start]) + click.style(word, fg=_INK, bg=_SHADES[level])
            end = stop
    return shown + printable(body[end:])


def _levels(
    contributed: Contributions, origins: Sequence[tuple[int, int] | None], offset: int, length: int
) -> list[tuple[int, int, int]]:
    """Return start, end and shade of the words to shade among ``length`` characters from ``offset``, in order."""
    by_word = contributed.of_words()
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
    terms = []
    if parts.of_cosine and parts.cosine is not None:
        terms.append(f"cosine {parts.cosine:.3f} gives {parts.of_cosine:+.2f}")
    if parts.matched is not None and parts.highest is not None:
        terms.append(f"BM25, {parts.matched:.0%} of the highest possible {parts.highest:.1f}, {parts.of_matched:+.2f}")
    part = f"; weight of the cosine {parts.read:.2f}, because the model cannot read the whole query"
    unread = "" if parts.read == 1 else part
    return f"{parts.value:.2f}: {'; '.join(terms)}; origin {parts.origin:+.2f}{unread}"


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
    contributed = explanation.contributions
    if contributed is None:
        return []
    named = "cosine" if explanation.unit == "cosine" or explanation.mode == "dense" else "query"
    lines = [f"{named:<10} {contributed.score:+.3f}, by words: {_listed(contributed.document_words())}"]
    if contributed.carriers and all(token.origin != "text" for token in contributed.carriers):
        names = ", ".join(token.text for token in contributed.carriers)
        lines.append(f"{'':<10} the chunk's vector comes from {names} alone: no values for single words")
    if not contributed.additive or abs(contributed.residual) > LEAST:
        lines.append(f"             residual, not part of any pair of words: {contributed.residual:+.3f}")
    return lines


def _listed(words: Sequence[WordShare]) -> str:
    """Return the words that contribute most, each with the word of the query that contributes most to it."""
    return ", ".join(f"{share.word} {share.value:.3f} ← {share.best}" for share in _largest(words)) or "none"


def _largest(words: Sequence[WordShare]) -> list[WordShare]:
    """Return the words that contribute most."""
    return [share for share in words if share.origin == "text" and is_word(share.word) and share.value >= LEAST][:WORDS]


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
        absence = opened.why_not(query, source, count, mode, store=name)
        say_left_out(opened)
        shown = namer(opened)(absence.source, name)
    about = {"query": query, "path": shown, "k": count, **({} if name is None else {"store": name})}
    if print_record({**about, **absence.to_dict()}, output):
        return
    rank = absence.rank_in_mode.rank
    place = f"rank {rank}" if rank is not None else "not found"
    inside = "" if rank is None else f", {'among' if rank <= count else 'not among'} the first {count}"
    say(f"{shown}: {place}{inside} ({absence.mode}; {counted(absence.chunks, 'chunk')})")
    for standing in absence.ranks:
        say(f"  {standing.mode:<8} {_rank_line(standing, count)}")
    if absence.note is not None:
        say(f"note: {absence.note}", err=True)
    if not absence.results:
        return  # all results are from the file
    phrases = [phrase for phrase in absence.phrases if phrase.results - phrase.here >= LEAST]
    words = [word for word in absence.words if word.results - word.here >= LEAST and is_word(word.word)]
    others = f"the {counted(absence.results, 'result')} from other files"
    chunk = absence.chunk.chunk
    member = member_of(absence.chunk.source, chunk.metadata)
    lines = places_in(
        member or absence.chunk.source or "", chunk.start_line, chunk.end_line, chunk.page, chunk.end_page
    )
    best = ", ".join(printable_line(part) for part in (member, lines) if part)
    compared = f"score lower in the file{f' (best chunk: {best})' if best else ''} than in {others}"
    say(f"Words of the query that {compared}:" if phrases or words else f"No words of the query {compared}.")
    for phrase in phrases[:_WORDS]:
        elsewhere = "" if phrase.here else ", elsewhere in the file" if phrase.in_file else ", not in the file"
        say(
            f"  {bare(phrase.phrase):<16} BM25 {phrase.here:.3f}, results {phrase.results:.3f} on average; in "
            f"{phrase.found_in} of {counted(absence.results, 'result')}{elsewhere}"
        )
    for word in words[:_WORDS]:
        say(f"  {word.word:<16} cosine {word.here:+.3f}, results {word.results:+.3f} on average")


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
