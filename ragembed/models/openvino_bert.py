"""The forward pass of BERT and its relatives with OpenVINO: one graph from the weights, one window for each request.

A request runs in one thread and without padding, so a vector depends on no other text. Equations follow Devlin et al.
2019, as in :mod:`ragembed.models.numpy_bert`.
"""

from __future__ import annotations

import threading
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed.config.specs import WORD_EMBEDDINGS
from ragembed.extras import without_collection, without_module
from ragembed.models.bert_files import POSITIONS, WORDS, BertTensors
from ragembed.resources import cores, require_room
from ragembed.types import Floats

require_room("OpenVINO")
# With its telemetry, OpenVINO would send a message to Google Analytics when it is imported.
with without_collection(), without_module("openvino_telemetry"):
    import openvino
    from openvino import opset13 as ops

_LEVELS, _GROUP = 127, 64
"""Largest weight in 8 bits, and number of inputs of a product whose weights share a scale."""


def fast_dtype() -> str:
    """Return ``"bfloat16"`` if the processor multiplies it in hardware, otherwise ``"float32"``."""
    precision = openvino.Core().get_property("CPU", "INFERENCE_PRECISION_HINT")
    return "bfloat16" if precision == openvino.Type.bf16 else "float32"


class OpenVinoBert:
    """The model in ``folder``, which must satisfy :func:`ragembed.models.bert_files.is_plain_bert`.

    ``dtype`` is ``"float32"``, ``"bfloat16"``, or ``"int8"``: weights in 8 bits. As many threads as the machine has
    cores may call the model at a time.
    """

    def __init__(self, folder: Path, dtype: str) -> None:
        self._arguments = folder, dtype
        self._tensors = BertTensors(folder)
        self._shape = self._tensors.shape
        self._dtype = dtype
        self._places = self._tensors.tensor(POSITIONS) + self._tensors.type_vector()
        self.dim, self.n_layers = self._shape.dim, self._shape.n_layers
        self._lock = threading.Lock()
        self._layers: tuple[int, ...] = ()
        self._compiled: Any = None
        self._idle: SimpleQueue[Any] = SimpleQueue()

    def __reduce__(self) -> tuple[type[OpenVinoBert], tuple[Path, str]]:
        """Load the model again in a copy, because a compiled graph cannot be copied."""
        return OpenVinoBert, self._arguments

    def states(self, ids: NDArray[np.int64], lengths: NDArray[np.int64], layers: tuple[int, ...]) -> list[Floats]:
        """Return the hidden states of ``layers``; see :meth:`ragembed.models.choice.Backbone.states`."""
        states = [np.zeros((*ids.shape, self.dim), dtype=np.float32) for _ in layers]
        for row, length in enumerate(lengths.tolist()):
            for whole, of_window in zip(states, self._window(ids[row, :length], layers), strict=True):
                whole[row, :length] = of_window
        return states

    def word_embeddings(self) -> Floats:
        """Return the word-embedding table; see :meth:`ragembed.models.choice.Backbone.word_embeddings`."""
        return self._tensors.tensor(WORDS)

    def _window(self, ids: NDArray[np.int64], layers: tuple[int, ...]) -> list[Floats]:
        """Return the hidden states of ``layers`` of one window, shape ``(tokens, d)``."""
        words = self._tensors.stored(WORDS)[ids]
        computed = tuple(sorted(layer for layer in layers if layer != WORD_EMBEDDINGS))
        by_layer = {WORD_EMBEDDINGS: words}
        if computed:
            inputs = {0: words + self._places[self._tensors.positions(ids[None])[0]]}
            if (bias := self._tensors.distance_bias(len(ids))) is not None:
                inputs[1] = bias[None]
            elif len(ids) == 1:  # twice has the same states; once makes those of later windows wrong without AVX-512
                inputs[0] = np.repeat(inputs[0], 2, axis=0)
            with self._lock:
                if self._layers != computed:
                    self._compiled, self._layers, self._idle = self._compile(computed), computed, SimpleQueue()
                    self._tensors.release()
                compiled, idle = self._compiled, self._idle
            try:
                request = idle.get_nowait()
            except Empty:
                request = compiled.create_infer_request()
            request.infer(inputs, share_inputs=True)
            by_layer.update(
                (layer, request.get_output_tensor(number).data[: len(ids)].copy())
                for number, layer in enumerate(computed)
            )
            idle.put(request)
        return [by_layer[layer] for layer in layers]

    def _compile(self, layers: tuple[int, ...]) -> Any:
        """Compile the graph of the blocks up to the last of ``layers``, ascending, whose states it returns."""
        states = ops.parameter([-1, self.dim], np.float32)
        bias = self._tensors.distance_bias(1)
        distances = None if bias is None else ops.parameter([1, len(bias), -1, -1], np.float32)
        outputs = [self._norm(states, "embeddings.LayerNorm")]
        for block in range(layers[-1]):
            outputs.append(self._block(outputs[-1], distances, f"encoder.layer.{block}."))
        results = [ops.result(outputs[layer]) for layer in layers]
        model = openvino.Model(results, [states] if distances is None else [states, distances])
        options = {
            "INFERENCE_PRECISION_HINT": "f32" if "float32" in (self._dtype, fast_dtype()) else "bf16",
            "NUM_STREAMS": cores(),
            "INFERENCE_NUM_THREADS": cores(),
            "ENABLE_CPU_PINNING": False,
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": _GROUP if self._dtype == "int8" else 0,
        }
        return openvino.Core().compile_model(model, "CPU", options)

    def _block(self, states: Any, distances: Any, name: str) -> Any:
        attention = name + "attention."
        size = self.dim // self._shape.heads
        query, key, value = (
            _turned(_reshaped(self._linear(states, f"{attention}self.{part}"), 1, -1, self._shape.heads, size))
            for part in ("query", "key", "value")
        )
        mixed = ops.scaled_dot_product_attention(query, key, value, distances)
        output = self._linear(_reshaped(_turned(mixed), -1, self.dim), attention + "output.dense")
        states = self._norm(ops.add(output, states), attention + "output.LayerNorm")
        inner = ops.gelu(self._linear(states, name + "intermediate.dense"), "erf")
        return self._norm(ops.add(self._linear(inner, name + "output.dense"), states), name + "output.LayerNorm")

    def _linear(self, states: Any, name: str) -> Any:
        weight, bias = (self._tensors.tensor(f"{name}.{part}") for part in ("weight", "bias"))
        return ops.add(ops.matmul(states, self._weight(weight), False, True), ops.constant(bias[None]))

    def _weight(self, weight: Floats) -> Any:
        """Return a weight, shape ``(d_out, d_in)``; in 8 bits, it is the product of levels and a scale per group."""
        if self._dtype != "int8":
            return ops.constant(weight)
        groups = weight.reshape(len(weight), -1, _GROUP if weight.shape[1] % _GROUP == 0 else weight.shape[1])
        scales = np.maximum(np.abs(groups).max(axis=2, keepdims=True) / _LEVELS, np.finfo(np.float32).tiny)
        levels = ops.convert(ops.constant(np.rint(groups / scales).astype(np.int8)), "f32")
        return _reshaped(ops.multiply(levels, ops.constant(scales.astype(np.float32))), *weight.shape)

    def _norm(self, states: Any, name: str) -> Any:
        weight, bias = (ops.constant(self._tensors.tensor(f"{name}.{part}")[None]) for part in ("weight", "bias"))
        scaled = ops.mvn(states, ops.constant(np.array([-1])), True, self._shape.epsilon, "inside_sqrt")
        return ops.add(ops.multiply(scaled, weight), bias)


def _reshaped(states: Any, *shape: int) -> Any:
    return ops.reshape(states, ops.constant(np.array(shape)), False)


def _turned(states: Any) -> Any:
    """Exchange the axes of tokens and heads."""
    return ops.transpose(states, ops.constant(np.array([0, 2, 1, 3])))
