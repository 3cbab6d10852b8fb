"""Devices: which ones encode documents, and that the vectors do not depend on them."""

import numpy as np
import pytest
import torch

from ragembed import Embedder, EmbedderConfig
from ragembed.embedder import encode_raw
from ragembed.errors import ConfigError, GpuError
from ragembed.models import torch_devices
from ragembed.models.choice import batch_model
from ragembed.models.devices import choose_devices
from ragembed.models.files import find_model
from ragembed.models.torch_devices import fast_dtype, find_devices
from ragembed.models.transformers_model import TransformersModel

TEXTS = [
    "the writer holds the lock of the store",
    "a reader is in the folder",
    "shock wave and boundary layer on a wing " * 30,
    "",
    "supersonic air flow",
    *(f"the cat sleeps and the dog runs, {'the bird flies ' * i}" for i in range(60)),
]

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")
needs_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="PyTorch sees fewer than two GPUs")


@pytest.fixture
def gpus(monkeypatch):
    """Let PyTorch see GPUs of some compute capabilities."""

    def see(*capabilities):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(capabilities))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(capabilities))
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capabilities[device.index])

    return see


# Requested devices


@pytest.mark.parametrize(
    ("requested", "visible", "names"),
    [
        (None, 0, ["cpu"]),
        ("auto", 0, ["cpu"]),
        (None, 2, ["cuda:0", "cuda:1"]),
        ("auto", 1, ["cuda:0"]),
        ("cpu", 0, ["cpu"]),
        ("cpu", 2, ["cpu"]),
        ("gpu", 3, ["cuda:0", "cuda:1", "cuda:2"]),
        ("gpu:1", 2, ["cuda:1"]),
        ("gpu:2,0", 3, ["cuda:2", "cuda:0"]),
        ("cuda", 2, ["cuda:0", "cuda:1"]),
        ("cuda:1", 2, ["cuda:1"]),
        ("cuda:0,1", 2, ["cuda:0", "cuda:1"]),
        ("mps", 0, ["mps"]),
        ("mps", 2, ["mps"]),
    ],
)
def test_requested_devices(requested, visible, names):
    assert choose_devices(requested, visible) == tuple(names)


@pytest.mark.parametrize("requested", ["gpu", "cuda", "gpu:0", "cuda:1", "gpu:0,1"])
def test_gpu_without_any_gpu(requested):
    with pytest.raises(GpuError, match=f"device is '{requested}', but PyTorch sees no GPU: check .* or choose"):
        choose_devices(requested, 0)


@pytest.mark.parametrize(("requested", "absent"), [("gpu:2", 2), ("cuda:7", 7), ("gpu:0,3,9", 3)])
def test_missing_gpu_number(requested, absent):
    with pytest.raises(GpuError, match=f"'{requested}', but there is no GPU {absent}: choose among 0, 1"):
        choose_devices(requested, 2)


@pytest.mark.parametrize(
    "requested", ["gpu:", "gpu:x", "gpu:-1", "gpu:0,", "gpu:0,0", "gpu: 0", "gpus", "cuda0", "gpu:٠"]
)
def test_invalid_gpu_numbers(requested):
    with pytest.raises(ConfigError, match="expected distinct GPU numbers, as in 'gpu:0' or 'gpu:0,2'"):
        choose_devices(requested, 2)


def test_visible_gpus_come_from_pytorch(gpus):
    gpus()
    assert find_devices(None) == ("cpu",)
    with pytest.raises(GpuError, match="sees no GPU"):
        find_devices("gpu")
    gpus((8, 0), (9, 0))
    assert find_devices(None) == find_devices("gpu") == ("cuda:0", "cuda:1")


@pytest.mark.parametrize("requested", ["banana", "", "CPU", "mps:x"])
def test_unknown_device(requested):
    with pytest.raises(ConfigError, match=f"device is '{requested}': expected 'auto', 'cpu', 'gpu'"):
        find_devices(requested)


@pytest.mark.parametrize("requested", ["hpu", "mtia"])
def test_unavailable_device(requested):
    with pytest.raises(GpuError, match=f"device is '{requested}', but PyTorch cannot use it here"):
        find_devices(requested)


# Arithmetic


@pytest.mark.parametrize("on_cpu", [True, False])
def test_fast_dtype_of_each_kind_of_device(gpus, monkeypatch, on_cpu):
    gpus((7, 5), (8, 0), (9, 0))
    monkeypatch.setattr(torch_devices, "_cpu_reports", lambda name: on_cpu)
    assert fast_dtype(("cpu",)) == ("bfloat16" if on_cpu else "float32")
    assert fast_dtype(("cuda:1", "cuda:2")) == "bfloat16"
    assert fast_dtype(("cuda:0",)) == fast_dtype(("cuda:2", "cuda:0")) == fast_dtype(("mps",)) == "float32"


def test_requested_device_determines_the_dtype_of_a_fit(tiny_model, gpus, monkeypatch):
    gpus((9, 0))
    monkeypatch.setattr("ragembed.models.choice._fast_cpu_dtype", lambda: "float32")
    monkeypatch.setattr(torch_devices, "_cpu_reports", lambda name: False)
    monkeypatch.setattr("ragembed.extractors.transformer.TransformerExtractor.agrees_in_bfloat16", lambda self: True)
    config = EmbedderConfig(model=str(tiny_model))
    assert Embedder(config).fit_extractor(TEXTS).config.dtype == "mixed"
    assert Embedder(config, device="cpu").fit_extractor(TEXTS).config.dtype == "float32"


# Embedders


@pytest.fixture
def only_torch(monkeypatch):
    monkeypatch.setattr("ragembed.models.choice.is_installed", lambda module: module == "torch")


def test_device_names_of_an_embedder(tiny_config, gpus):
    gpus()
    assert Embedder(tiny_config).device_names() == ("cpu",)
    gpus((9, 0), (9, 0))
    assert Embedder(tiny_config).device_names() == ("cuda:0", "cuda:1")
    assert Embedder(tiny_config, device="gpu:1").device_names() == ("cuda:1",)
    assert Embedder(tiny_config, device="cpu").device_names() == ("cpu",)
    assert Embedder(tiny_config.replace(extractor="re:dim=8"), device="gpu:9").device_names() == ("cpu",)


@pytest.mark.parametrize(("device", "error"), [("gpu", GpuError), ("gpu:x", ConfigError)])
def test_missing_device_is_reported_before_any_text_is_read(tiny_config, gpus, device, error):
    gpus()
    texts = iter(TEXTS)
    with pytest.raises(error, match=f"device is '{device}'"):
        Embedder(tiny_config, device=device).fit(texts)
    assert next(texts) == TEXTS[0]


def test_queries_without_a_framework_ignore_the_device(tiny_config, gpus, tmp_path):
    Embedder(tiny_config, device="cpu").fit(TEXTS).save(tmp_path)
    gpus()
    embedder = Embedder.load(tmp_path, device="gpu")
    assert embedder.encode_queries(["the lock"]).shape == (1, 32)
    with pytest.raises(GpuError, match="sees no GPU"):
        embedder.encode_documents(["the lock"])


@pytest.mark.parametrize("extractor", ["transformer", "avg", "bert+avg", "sbert-wk"])
def test_vectors_do_not_depend_on_the_number_of_devices(bert_model, monkeypatch, only_torch, extractor):
    config = EmbedderConfig(model=str(bert_model), dtype="float32", extractor=extractor)
    one = Embedder(config, device="cpu").fit(TEXTS)
    # Three names of the same device, each with its own replica.
    monkeypatch.setattr(torch_devices, "find_devices", lambda requested: ("cpu", "cpu:0", "cpu:1"))
    used = []

    def compute(self, *args, original=TransformersModel.states):
        used.append(self)
        return original(self, *args)

    monkeypatch.setattr(TransformersModel, "states", compute)
    counts = []
    several = Embedder(config).fit(TEXTS)
    np.testing.assert_array_equal(several.raw_documents(TEXTS, counts.append), one.raw_documents(TEXTS))
    np.testing.assert_array_equal(several.encode_documents(TEXTS), one.encode_documents(TEXTS))
    np.testing.assert_array_equal(several.encode_queries(TEXTS[:3]), one.encode_queries(TEXTS[:3]))
    assert several.fingerprint == one.fingerprint
    assert sum(counts) == len(TEXTS)
    assert len(set(used)) == 3


# With a GPU


def cosines(a, b):
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


@needs_gpu
def test_all_visible_gpus_are_used_by_default(tiny_config):
    names = tuple(f"cuda:{number}" for number in range(torch.cuda.device_count()))
    for device in (None, "auto", "gpu", "cuda"):
        assert Embedder(tiny_config, device=device).device_names() == names
    assert Embedder(tiny_config, device="cuda:0").device_names() == ("cuda:0",)
    with pytest.raises(GpuError, match=f"there is no GPU {len(names)}"):
        Embedder(tiny_config, device=f"gpu:{len(names)}").fit(TEXTS)


@needs_gpu
def test_gpu_hidden_states_equal_cpu_hidden_states(tiny_model):
    ids, lengths = np.random.default_rng(0).integers(5, 100, size=(8, 40)), np.array([40, 31, 22, 13, 4, 3, 2, 1])
    layers = (-1, 0, 1, 2)
    on_gpu = TransformersModel(tiny_model, "float32", "cuda:0").states(ids, lengths, layers)
    on_cpu = TransformersModel(tiny_model, "float32", "cpu").states(ids, lengths, layers)
    for mine, other in zip(on_gpu, on_cpu, strict=True):
        for row, length in enumerate(lengths):
            np.testing.assert_allclose(mine[row, :length], other[row, :length], atol=1e-3)


@needs_gpu
@pytest.mark.parametrize(("dtype", "least"), [("float32", 1 - 1e-5), ("bfloat16", 0.99)])
def test_gpu_vectors_equal_cpu_vectors(tiny_config, dtype, least):
    texts = [text for text in TEXTS if text]
    on_cpu = Embedder(tiny_config, device="cpu").fit(texts)
    on_gpu = Embedder(tiny_config.replace(dtype=dtype)).fit(texts)
    assert cosines(on_gpu.raw_documents(texts), on_cpu.raw_documents(texts)).min() > least
    assert cosines(*encode_raw([on_gpu, on_cpu], texts, "pseudo-queries")).min() > least


@needs_gpus
def test_several_gpus_give_the_same_vectors_as_one(tiny_config):
    one, all_of_them = (Embedder(tiny_config, device=device).fit(TEXTS * 20) for device in ("gpu:0", "gpu"))
    assert cosines(one.encode_documents(TEXTS * 20), all_of_them.encode_documents(TEXTS * 20)).min() > 1 - 1e-5


@needs_gpu
def test_batch_larger_than_gpu_memory_is_split(tiny_model):
    ids = np.random.default_rng(0).integers(5, 100, size=(20_000, 64))
    lengths = np.full(len(ids), 64)
    model = TransformersModel(tiny_model, "float32", "cuda:0")
    whole = model.states(ids, lengths, (2,))[0]
    compute, sizes = model._compute, []
    model._compute = lambda ids, *args: sizes.append(len(ids)) or compute(ids, *args)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    try:
        # 256 MiB besides the model; each sum of the first block takes 160 MiB.
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved(0) + 2**28) / total, 0)
        parts = model.states(ids, lengths, (2,))[0]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, 0)
    assert sizes[0] == len(ids) > sizes[-1]
    np.testing.assert_allclose(parts, whole, atol=1e-3)


@needs_gpu
def test_users_on_the_same_gpu_share_the_model(tiny_model):
    files = find_model(str(tiny_model))
    first = batch_model(files, "float32", "cuda:0")
    assert batch_model(files, "float32", "cuda:0") is first
    assert batch_model(files, "float32", "cpu") is not first
