"""``ragembed papers reverse-dictionary``."""

from __future__ import annotations

from pathlib import Path

import click

from ragembed.cli.options import EXISTING_PATH, LocalPath, format_option
from ragembed.cli.output import print_record, print_records, say


@click.command(name="reverse-dictionary")
@click.argument("model", type=LocalPath(exists=True, file_okay=False))
@click.argument("text", required=False)
@click.option(
    "-k", "k", type=click.IntRange(1), metavar="N", default=10, show_default=True, help="Number of entries to print."
)
@click.option(
    "--evaluate",
    type=EXISTING_PATH,
    metavar="DICTIONARY",
    help="Look up every definition of this dictionary, and print how often its entry is among the first 1, 10 and 100.",
)
@click.option(
    "--device",
    metavar="DEVICE",
    help="Device of the model: cpu, gpu:1, or auto (a GPU, else the CPU).  [default: auto]",
)
@format_option
def command(model: Path, text: str | None, k: int, evaluate: Path | None, device: str | None, output: str) -> None:
    """Find words by their definition.

    \b
    ragembed papers reverse-dictionary trained/ "a long-necked African animal"
    ragembed papers reverse-dictionary trained/ --evaluate trained/held-out.jsonl

    MODEL is a folder that ragembed papers train has written. Prints the entries of its dictionary that fit TEXT best,
    each with its probability. Give either TEXT or --evaluate.
    """  # noqa: D301  click reads the backspace character as "do not wrap"
    if (text is None) == (evaluate is None):
        raise click.UsageError("nothing to look up: give either TEXT or --evaluate DICTIONARY")
    from ragembed.papers.training import ReverseDictionary

    reverse = ReverseDictionary(model, device)
    if text is not None:
        found = [{"entry": each.entry, "probability": each.probability} for each in reverse.look_up(text, k)]
        if not print_records({"entries": found}, "entries", output):
            for each in found:
                say(f"{each['probability']:.4f}  {each['entry']}")
    elif evaluate is not None:
        from ragembed.papers.training.dictionary import read_dictionaries

        measured = reverse.measure(read_dictionaries([evaluate])).to_dict()
        if not print_record(measured, output):
            say(
                f"top-1 {measured['top1']:.1f}, top-10 {measured['top10']:.1f}, top-100 {measured['top100']:.1f}, mean "
                f"reciprocal rank {measured['mrr']:.3f}, of {measured['definitions']:,} definitions"
            )
