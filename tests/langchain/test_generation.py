"""``RagGenerator``: one decoder encodes queries and answers, with the same result as two models."""

import gc

import pytest
import torch
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, GPT2Model, Qwen2Config, Qwen2ForCausalLM

from ragembed.errors import ConfigError, ModelError
from ragembed.langchain import RagContext, RagEmbeddings, RagGenerator, RagRetriever, RagVectorStore
from tests.core.conftest import _byte_level, _saved

from .conftest import CORPUS

QUERY = "who sleeps on the warm window sill?"
SETTINGS = {
    "pooling": "last",
    "weighting": "uniform",
    "dtype": "float32",
    "device": "cpu",
    "query_prompt": "Question: ",
}


def sizes(tokenizer):
    return {"vocab_size": tokenizer.get_vocab_size(), "initializer_range": 0.3, "bos_token_id": 0, "eos_token_id": 0}


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    tokenizer = _byte_level(["<end>"])
    config = GPT2Config(n_embd=32, n_layer=3, n_head=4, n_positions=512, **sizes(tokenizer))
    torch.manual_seed(5)
    return _saved(tmp_path_factory.mktemp("gpt-lm"), tokenizer, GPT2LMHeadModel, config)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    tokenizer = _byte_level(["<end>"])
    config = Qwen2Config(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        **sizes(tokenizer),
    )
    torch.manual_seed(6)
    return _saved(tmp_path_factory.mktemp("qwen-lm"), tokenizer, Qwen2ForCausalLM, config)


@pytest.fixture(params=["gpt", "qwen"])
def decoder(request):
    return request.getfixturevalue(request.param)


def generator_of(folder, k=2, **more):
    embeddings = RagEmbeddings(model=str(folder), **SETTINGS)
    vector_store = RagVectorStore.from_texts(CORPUS, embeddings)
    retriever = RagRetriever(vectorstore=vector_store, k=k, search_type="dense")
    return RagGenerator(embeddings=embeddings, retriever=retriever, max_new_tokens=12, **more)


def expected_answer(folder, documents):
    """The answer of a model that is loaded separately, without a cache of the query."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    context = "\n\n".join(document.page_content for document in documents)
    parts = (f"Question: {QUERY}", "\n\nContext:\n", context, "\n\nAnswer:")
    ids = [number for part in parts for number in tokenizer.encode(part)]
    found = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False, pad_token_id=0)
    return tokenizer.decode(found[0, len(ids) :], skip_special_tokens=True), len(ids), len(tokenizer.encode(parts[0]))


def test_answer_equals_that_of_a_second_model(decoder):
    found = generator_of(decoder).invoke(QUERY)
    answer, tokens, query_tokens = expected_answer(decoder, found["context"])
    assert (found["input"], len(found["context"])) == (QUERY, 2)
    assert (found["answer"], found["tokens"]) == (answer, tokens)
    assert found["reused_tokens"] == query_tokens


@pytest.mark.parametrize("first", ["embeddings", "generator"])
def test_weights_are_in_memory_once(gpt, first):
    embeddings = RagEmbeddings(model=str(gpt), **SETTINGS)
    if first == "embeddings":
        embeddings.embed_query(QUERY)
    generator = RagGenerator(embeddings=embeddings, retriever=RunnableLambda(lambda _: "no documents"))
    generator.invoke(QUERY)
    embeddings.embed_query(QUERY)
    gc.collect()
    table = next(iter(generator._generator._backbone.head.parameters()))
    copies = {
        each.data_ptr()
        for each in gc.get_objects()
        if type(each) is torch.nn.Parameter and each.shape == table.shape and torch.equal(each, table)
    }
    assert copies == {table.data_ptr()}


def test_another_query_is_not_continued(gpt):
    """The retriever finds the documents without encoding the query, so nothing of the prompt is known."""
    embeddings = RagEmbeddings(model=str(gpt), **SETTINGS)
    retriever = RunnableLambda(lambda _: [Document("The cat sleeps.")])
    generator = RagGenerator(embeddings=embeddings, retriever=retriever, max_new_tokens=12)
    first = generator.invoke(QUERY)
    embeddings.embed_query("Question: something else")
    second = generator.invoke(QUERY)
    answer, _, _ = expected_answer(gpt, first["context"])
    assert first["answer"] == second["answer"] == answer
    assert second["reused_tokens"] < first["tokens"]


def test_chains_and_long_contexts(gpt):
    """The context may be text, and is cut to fit the window."""
    generator = generator_of(gpt, k=6)
    packed = generator.retriever | RagContext(vectorstore=generator.retriever.vectorstore, budget=40)
    packing = RagGenerator(embeddings=generator.embeddings, retriever=packed, max_new_tokens=3)
    assert isinstance(packing.invoke(QUERY)["context"], str)
    long = RunnableLambda(lambda _: "cat " * 2000)
    cut = RagGenerator(embeddings=generator.embeddings, retriever=long, max_new_tokens=20)
    assert cut.invoke(QUERY)["tokens"] == 512 - 20
    assert cut.batch([QUERY, QUERY])[0] == cut.batch([QUERY])[0]


def test_models_that_cannot_generate(gpt, tmp_path, unfitted):
    tokenizer = _byte_level(["<end>"])
    config = GPT2Config(n_embd=32, n_layer=1, n_head=4, n_positions=64, tie_word_embeddings=False, **sizes(tokenizer))
    headless = _saved(tmp_path, tokenizer, GPT2Model, config)
    nothing = RunnableLambda(lambda _: "")
    for embeddings, error, message in (
        (RagEmbeddings(model=str(headless), **SETTINGS), ModelError, "have no lm_head.weight, which generating needs"),
        (RagEmbeddings(weighting="uniform", postprocess=[]), ConfigError, "is an encoder, which does not generate"),
        (unfitted.fit(CORPUS), ConfigError, "expected 'transformer', whose model generates"),
    ):
        with pytest.raises(error, match=message):
            RagGenerator(embeddings=embeddings, retriever=nothing).invoke(QUERY)
    with pytest.raises(ValueError, match=r"expected a text with \{context\} once"):
        RagGenerator(embeddings=unfitted, retriever=nothing, prompt="no place")
    with pytest.raises(ConfigError, match="does not return documents"):
        RagGenerator(
            embeddings=RagEmbeddings(model=str(gpt), **SETTINGS), retriever=RunnableLambda(lambda _: [1])
        ).invoke(QUERY)
    with pytest.raises(ConfigError, match="shorten the prompt or lower max_new_tokens"):
        RagGenerator(
            embeddings=RagEmbeddings(model=str(gpt), **SETTINGS), retriever=nothing, max_new_tokens=600
        ).invoke(QUERY)
