"""MiniLM in another runtime: texts sorted by length, in batches of about as many tokens as ragembed takes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from waiting import Told, Turn, main

_BATCH_TOKENS = 4096
_STEP = 16
"""Widths of batches are its multiples: compiled programs depend on them."""

Forward = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Gives the last layer, shape ``(texts, width, d)``, of ids and of what is no padding, int64, ``(texts, width)``."""


def make(request: dict[str, Any]) -> tuple[Turn, Told]:
    """Return a turn that encodes the texts; told are the first pass's seconds, and the lowest cosine to float32."""
    texts = json.loads(Path(request["texts"]).read_text(encoding="utf-8"))
    started = time.perf_counter()
    tokenizer = Tokenizer.from_file(str(Path(request["model"]) / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    forward = RUNTIMES[request["runtime"]](request)
    found = _encode(texts, tokenizer, forward)
    seconds = time.perf_counter() - started
    known = np.load(request["exact"])
    cosines = (found * known).sum(axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(known, axis=1)

    def turn(number: int) -> None:
        del number
        _encode(texts, tokenizer, forward)

    return turn, {"first": seconds, "lowest_cosine": float(cosines.min())}


def _encode(texts: list[str], tokenizer: Tokenizer, forward: Forward) -> np.ndarray:
    """Return the mean of the last layer's token vectors of each text, float32, shape ``(n, d)``."""
    ids = [each.ids for each in tokenizer.encode_batch(texts)]
    vectors = []
    order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
    for batch in _batches(order, ids):
        width = -(-len(ids[batch[0]]) // _STEP) * _STEP
        padded = np.zeros((len(batch), width), dtype=np.int64)
        mask = np.zeros((len(batch), width), dtype=np.int64)
        for row, i in enumerate(batch):
            padded[row, : len(ids[i])] = ids[i]
            mask[row, : len(ids[i])] = 1
        states = forward(padded, mask)
        vectors.append((states * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True))
    found = np.empty((len(texts), vectors[0].shape[1]), dtype=np.float32)
    found[order] = np.concatenate(vectors)
    return found


def _batches(order: list[int], ids: list[list[int]]) -> Iterator[list[int]]:
    start = 0
    while start < len(order):
        count = max(1, _BATCH_TOKENS // len(ids[order[start]]))
        yield order[start : start + count]
        start += count


def _compiled(request: dict[str, Any]) -> Forward:
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(request["model"], dtype=torch.bfloat16).eval()
    compiled = torch.compile(model, dynamic=True)

    def forward(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            states = compiled(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask)).last_hidden_state
        return states.float().numpy()

    return forward


def _onnxruntime(request: dict[str, Any]) -> Forward:
    import onnxruntime

    session = onnxruntime.InferenceSession(request["onnx"], providers=["CPUExecutionProvider"])

    def forward(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return session.run(None, {"input_ids": ids, "attention_mask": mask})[0]

    return forward


def _openvino(request: dict[str, Any]) -> Forward:
    import openvino

    model = openvino.Core().compile_model(request["onnx"], "CPU", {"INFERENCE_PRECISION_HINT": "bf16"})

    def forward(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return model([ids, mask])[0]

    return forward


RUNTIMES = {"torch.compile": _compiled, "ONNX Runtime": _onnxruntime, "OpenVINO": _openvino}


if __name__ == "__main__":
    main(make)
