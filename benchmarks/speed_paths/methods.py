"""What ways of embedding cost beside the plain mean of the last layer."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from report import table

from speed_paths.scores import Outcome, Score
from speed_paths.setting import Setting, say
from speed_paths.shown import of_medians, share, spread, times

_GOALS = {"T4": 1.1, "BERT + Avg., first + last layer, idf": 1.1, "SBERT-WK": 1.3}
_PER_TOKEN = ("T4",)
_SENTENCES, _TRIAL_SENTENCES = 1000, 60


def measure(setting: Setting) -> Outcome:
    """Let each way take turns with the plain one."""
    sentences = _sentences(setting.data / "sts" / "sts14.tsv", setting.choose(_SENTENCES, _TRIAL_SENTENCES))
    file = setting.folder / "sentences.json"
    file.write_text(json.dumps(sentences), encoding="utf-8")
    say(f"{len(sentences):,} sentences, each way beside the plain mean")
    told = setting.tell("methods.py", {"texts": str(file), "turns": 2 * setting.turns + 1})
    rows, scores = [], []
    for name, one in told.items():
        plain, this = one["seconds"]["plain"], one["seconds"]["this"]
        ratio = of_medians(this, plain)
        a_token = ratio * one["tokens"]["plain"] / one["tokens"]["this"]
        rows.append([name, spread(plain), spread(this), times(ratio), f"{one['tokens']['this']:,}", times(a_token)])
        if name in _GOALS:
            shown = (a_token, f"methods: {name}, a token") if name in _PER_TOKEN else (ratio, f"methods: {name}")
            floor = min(1.0, 1 / shown[0])
            scores.append(Score(shown[1], shown[0], _GOALS[name], more_is_better=False, floor=floor))
    plain_tokens = next(iter(told.values()))["tokens"]["plain"]
    about = (
        f"Encoding {len(sentences):,} sentences of STS 2014 ({plain_tokens:,} tokens) with MiniLM, fitted before, "
        "tokenizing included, without post-processors: each beside the plain mean of the last layer in one process, "
        "the two taking turns. Below 1 is less than the plain way; T4 is judged by the token, as its template is part "
        "of what the model reads."
    )
    floor = (
        "Floor: the plain pass through the model, 1 ×; a mean over other layers or tokens adds 2 d operations a token "
        "and layer to its 24 d², and reads 2 d bytes. SBERT-WK adds a QR factorisation of at most 5 × d for each "
        f"token, about 100 d operations, {share(100 / (6 * 24 * 384))} of the model's."
    )
    header = ["", "plain, s", "this, s", "ratio", "tokens", "ratio by the token"]
    return Outcome(scores, [about, table(header, rows), floor])


def _sentences(path: Path, count: int) -> list[str]:
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    found = list(dict.fromkeys(row[name] for row in rows for name in ("sentence1", "sentence2")))[:count]
    if len(found) < count:
        raise ValueError(f"{path} has {len(found)} different sentences: expected {count}")
    return found
