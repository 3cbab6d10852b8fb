"""``ragembed reverse-dictionary``."""

from __future__ import annotations

from pathlib import Path

import click

from ragembed.cli.options import EXISTING_PATH, LocalPath, format_option
from ragembed.cli.output import print_record, print_records, say


@click.command(name="reverse-dictionary")
@click.argument("model", type=LocalPath(exists=True, file_okay=False))
@click.argument("text", required=False)
@click.option("-k", "k", type=click.IntRange(1), default=10, show_default=True, help="How many entries.")
@click.option(
    "--evaluate", type=EXISTING_PATH, metavar="DICTIONARY", help="Count how often its definitions find their entries."
)
@click.option("--device", metavar="DEVICE", help="auto (a GPU, if any), cpu, gpu:1.  [default: auto]")
@format_option
def command(model: Path, text: str | None, k: int, evaluate: Path | None, device: str | None, output: str) -> None:
    """Find the words that TEXT defines, with a MODEL that ragembed train has made.

    \b
    ragembed reverse-dictionary trained/ "a long-necked African animal"
    ragembed reverse-dictionary trained/ --evaluate trained/held-out.jsonl
    """  # noqa: D301  the escape is the character that keeps click from wrapping lines
    if (text is None) == (evaluate is None):
        raise click.UsageError("give a description, or --evaluate with a dictionary")
    from ragembed.training import ReverseDictionary

    reverse = ReverseDictionary(model, device)
    if text is not None:
        found = [{"entry": each.entry, "probability": each.probability} for each in reverse.look_up(text, k)]
        if not print_records({"entries": found}, "entries", output):
            for each in found:
                say(f"{each['probability']:.4f}  {each['entry']}")
    elif evaluate is not None:
        from ragembed.training.dictionaries.reading import read_dictionaries

        measured = reverse.measure(read_dictionaries([evaluate])).to_dict()
        if not print_record(measured, output):
            say(
                f"top-1 {measured['top1']:.1f}, top-10 {measured['top10']:.1f}, top-100 {measured['top100']:.1f}, mean "
                f"reciprocal rank {measured['mrr']:.3f}, of {measured['definitions']:,} definitions"
            )
