"""Encoding documents in other runtimes: the same model, texts sorted by length, start-up told beside it."""

from __future__ import annotations

import sys

from environments import RUNTIMES, packages
from report import significant, table

from ragembed.config import DEFAULT_MODEL
from ragembed.models import find_model
from speed_paths.encode import cut_texts
from speed_paths.scores import Outcome, Score
from speed_paths.setting import PROGRAMS, Setting
from speed_paths.shown import of_medians, spread, times
from speed_paths.turns import Contestant, take_turns

_OURS = "ragembed"
_OTHERS = {
    "torch.compile": "torch, bfloat16, one program for all shapes",
    "ONNX Runtime": "onnxruntime, float32: it has no bfloat16 on CPUs",
    "OpenVINO": "openvino, bfloat16",
}
_CHANGES = {"weighting": "uniform", "postprocess": ["normalize"]}


def measure(setting: Setting) -> Outcome:
    """Let each encode documents of Cranfield, in turns."""
    RUNTIMES.ensure()
    folder = find_model(DEFAULT_MODEL).folder
    texts = cut_texts(setting, "cran", folder)
    onnx = setting.folder / "model.onnx"
    setting.runner.run([RUNTIMES.python, PROGRAMS / "onnx_model.py", folder, onnx])
    request = {
        "texts": str(texts.file),
        "model": str(folder),
        "onnx": str(onnx),
        "exact": str(setting.folder / "exact.npy"),
        "preset": "minilm",
        "changes": _CHANGES,
    }
    found = take_turns(
        [
            Contestant(_OURS, sys.executable, PROGRAMS / "encode_ragembed.py", request),
            *(
                Contestant(name, RUNTIMES.python, PROGRAMS / "encode_runtime.py", {**request, "runtime": name})
                for name in _OTHERS
            ),
        ],
        setting.turns,
        setting.runner,
    )
    tokens = sum(texts.lengths)
    rows, scores = [], []
    for name, turns in found.items():
        ready = turns.ready
        ratio = of_medians(turns.seconds, found[_OURS].seconds)
        rows.append(
            [
                name,
                spread([tokens / seconds for seconds in turns.seconds]),
                "" if name == _OURS else times(ratio),
                significant(ready["first"], 3),
                f"{ready['lowest_cosine']:.5f}",
            ]
        )
        if name != _OURS:
            scores.append(Score(f"encode: tokens/s beside {name}", ratio))
    header = ["", "tokens/s", "ragembed is faster", "first pass, s", "lowest cosine to float32"]
    return Outcome(scores, [_about(len(texts.lengths), tokens), table(header, rows)])


def _about(count: int, tokens: int) -> str:
    """Return what was measured."""
    versions = packages(RUNTIMES.python)
    made_with = ", ".join(f"{name} {versions[name]}" for name in ("torch", "onnxruntime", "openvino"))
    kinds = "; ".join(f"{name}: {what}" for name, what in _OTHERS.items())
    return (
        f"{count:,} documents of Cranfield, {tokens:,} tokens, as far as they fit one window, each as the plain mean "
        "of MiniLM's last layer. The other runtimes are given batches of 4,096 tokens of texts of about one length, "
        f"padded to multiples of 16. {kinds}. The first pass counts from nothing but the interpreter: importing, "
        f"loading, compiling, and encoding all once; the model was written as ONNX before. {made_with}."
    )
