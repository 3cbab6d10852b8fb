"""One decoder that encodes queries and answers (``RagGenerator``), against two loaded models: memory and time."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from data import Setting
from processes import in_new_process
from report import table
from speed import Outcome

_SETTINGS: dict[str, Any] = {
    "pooling": "last",
    "weighting": "uniform",
    "dtype": "float32",
    "device": "cpu",
    "query_prompt": "Instruct: Given a question, find passages of the manual that answer it. Query: ",
}
_QUERY = "who keeps a second writer of the same folder waiting, and how long does it have to wait for it?"
_TEXTS = ("A lock keeps a second writer waiting.", "Tea is brewed with hot water.", "A wing lifts because air flows.")
_NEW_TOKENS = 8


def generation(setting: Setting) -> Outcome:
    """Measure the resident memory and the time of an answer, each side in a new process."""
    layers = setting.choose(12, 2)
    folder = setting.folder / "decoder"
    parameters = in_new_process(_write_decoder, folder, layers)
    found = {name: in_new_process(_measured, folder, name, setting.turns) for name in ("one", "two")}
    same = found["one"]["answer"] == found["two"]["answer"]
    about = (
        f"A random GPT-2 with {layers} blocks of 768 dimensions and {parameters / 1e6:.0f} million parameters "
        f"({4 * parameters / 2**20:,.0f} MiB in float32) encodes a query, and answers it with {_NEW_TOKENS} tokens "
        f"from a prompt of {found['one']['tokens']} tokens; the query and its instruction are "
        f"{found['one']['reused']}. The answers are {'the same' if same else 'different'}. Memory is what the process "
        "holds after the answers, without what it held before it loaded a model. Times are medians."
    )
    rows = [
        [label, f"{found[name]['memory']:,.0f}", f"{found[name]['seconds']:.2f}"]
        for name, label in (
            ("one", "`RagGenerator`: one model"),
            ("two", "embeddings, and a second model that answers"),
        )
    ]
    return Outcome([about, table(["", "memory, MiB", "query and answer, s"], rows)])


def _write_decoder(folder: Path, layers: int) -> int:
    """Write a random GPT-2 with a byte-level tokenizer; return the number of its parameters."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([*_TEXTS, _QUERY], trainer)
    torch.manual_seed(0)
    sizes = {"n_embd": 768, "n_layer": layers, "n_head": 12, "n_positions": 1024}
    config = GPT2Config(vocab_size=32_000, bos_token_id=0, eos_token_id=0, **sizes)
    model = GPT2LMHeadModel(config)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return sum(each.numel() for each in model.parameters())


def _measured(folder: Path, side: str, turns: int) -> dict[str, Any]:
    """Answer several times with one or two models; return the last answer, the memory and the median time."""
    from ragembed.langchain import RagEmbeddings, RagGenerator, RagRetriever, RagVectorStore
    from ragembed.models import generation as _  # noqa: F401  imports PyTorch and transformers

    before = _resident()
    embeddings = RagEmbeddings(model=str(folder), **_SETTINGS)
    vector_store = RagVectorStore.from_texts(list(_TEXTS), embeddings)
    retriever = RagRetriever(vectorstore=vector_store, k=len(_TEXTS), search_type="dense")
    generator = RagGenerator(embeddings=embeddings, retriever=retriever, max_new_tokens=_NEW_TOKENS)
    second = None
    if side == "two":
        import torch
        from transformers import AutoModelForCausalLM

        second = AutoModelForCausalLM.from_pretrained(folder).eval()
    seconds, found = [], {}
    for _turn in range(turns + 1):
        started = time.perf_counter()
        if second is None:
            found = generator.invoke(_QUERY)
        else:
            documents = retriever.invoke(_QUERY)
            ids = generator._prompt_ids(_QUERY, documents)
            with torch.inference_mode():
                tokens = second.generate(
                    torch.tensor([ids]), max_new_tokens=_NEW_TOKENS, do_sample=False, pad_token_id=0
                )
            found = {"answer": generator._text(tokens[0, len(ids) :].tolist()), "tokens": len(ids)}
        seconds.append(time.perf_counter() - started)
    return {
        "answer": found["answer"],
        "tokens": found["tokens"],
        "reused": found.get("reused_tokens"),
        "memory": _resident() - before,
        "seconds": statistics.median(seconds[1:]),
    }


def _resident() -> float:
    """Return the resident memory of this process in MiB."""
    import gc

    gc.collect()
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
