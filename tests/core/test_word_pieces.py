import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from ragembed.models import word_pieces
from ragembed.models.tokenizer import TextTokenizer
from ragembed.models.word_pieces import WordPieces, splits_by_words

PIECES = ["[UNK]", "[CLS]", "[MASK]", *"abcde.,-é中", *(f"##{letter}" for letter in "abcdeé"), "bad", "##ed"]
CONTROLS = "\x00\x0b\x0c\x1c\x1d\x1e\x1f\x7f\x85\u200b\ufffd\ue000\u0301"
BLANKS = " \t\n\r\xa0\u1680\u2003\u2028\u2029\u202f\u3000"


def tokenizer(**settings):
    made = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(**settings)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(["[CLS]", "[MASK]"])
    made.encode_special_tokens = True
    return made


def expected(of, texts):
    return [of.encode(text, add_special_tokens=False).ids for text in texts]


def require_spans(pieces, of, texts):
    wanted = [of.encode(text, add_special_tokens=False).offsets for text in texts]
    assert [list(map(tuple, spans.tolist())) for spans in pieces.offsets(texts)] == wanted


def found(pieces, texts):
    return pieces.ids(texts).tolist()


@pytest.mark.parametrize("settings", [{}, {"lowercase": False}, {"strip_accents": False}])
@given(texts=st.lists(st.text(st.sampled_from("abcdeABÉé中.,-[]CLSMK" + CONTROLS + BLANKS), max_size=40), max_size=5))
def test_equals_the_tokenizer(settings, texts):
    of = tokenizer(**settings)
    assert splits_by_words(of)
    pieces = WordPieces(of)
    for _ in range(2):  # with an empty cache, then with a full one
        assert found(pieces, texts) == expected(of, texts)
        require_spans(pieces, of, texts)


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5))
def test_equals_the_tokenizer_on_any_text(texts):
    of = tokenizer()
    pieces = WordPieces(of)
    require_spans(pieces, of, texts)
    assert found(pieces, texts) == expected(of, texts)


def test_full_cache_is_cleared(monkeypatch):
    monkeypatch.setattr(word_pieces, "_MOST_LETTERS", 4)
    of = tokenizer()
    pieces = WordPieces(of)
    for text in ("ab cd", "ce", "bad " * 3, "ab cd", "dabeabd"):
        assert found(pieces, [text, ""]) == expected(of, [text, ""])
        assert sum(map(len, pieces._numbers)) <= 4


def test_word_is_split_once(monkeypatch):
    tokenized = []

    class Watched:
        def encode_batch(self, words, add_special_tokens):
            tokenized.extend(" ".join(words).split())
            return of.encode_batch(words, add_special_tokens=add_special_tokens)

    of = tokenizer()
    pieces = WordPieces(Watched())
    for _ in range(2):
        assert found(pieces, ["bad ab", "ab bad bad"]) == expected(of, ["bad ab", "ab bad bad"])
    assert sorted(tokenized) == ["ab", "bad"]


def test_copy_gives_the_same_ids():
    of = tokenizer()
    pieces = WordPieces(of)
    pieces.ids(["bad ab"])
    for other in (copy.deepcopy(pieces), copy.copy(pieces)):
        assert found(other, ["bad cd"]) == expected(of, ["bad cd"])


def test_threads_share_the_cache():
    of = tokenizer()
    pieces = WordPieces(of)
    texts = [[f"{a}{b} {b}{c}" for b in "abcde" for c in "abcde"] for a in "abcde"]
    with ThreadPoolExecutor(5) as pool:
        for _ in range(10):
            assert list(pool.map(lambda block: found(pieces, block), texts)) == [expected(of, each) for each in texts]


def test_other_tokenizers_are_not_supported():
    assert not splits_by_words(tokenizer(clean_text=False))
    with_words = tokenizer()
    with_words.add_tokens([AddedToken("a b")])
    assert not splits_by_words(with_words)
    other = tokenizer()
    other.pre_tokenizer = pre_tokenizers.Whitespace()
    assert not splits_by_words(other)
    other.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    other.normalizer = normalizers.Lowercase()
    assert not splits_by_words(other)
    assert not splits_by_words(Tokenizer(models.BPE()))


@pytest.mark.usefixtures("needs_minilm")
def test_real_texts_give_the_ids_of_the_tokenizer(collections):
    from ragembed.evaluation import read_beir
    from ragembed.models.files import find_model

    of = TextTokenizer(find_model("sentence-transformers/all-MiniLM-L6-v2").folder)
    assert of._pieces is not None
    for name in ("cran", "npl"):
        texts = list(read_beir(collections / "retrieval" / name).documents.values())[:1000]
        texts += ["Ünïcödé 中文 faiss.IndexFlat 0x80070005 \U0001f600\ud800 [MASK]", ""]
        assert found(of, texts) == [encoding.ids for encoding in of._encode(texts)]
        assert found(of, texts)[-1] == []
        assert of.ids(texts).lengths.tolist() == [len(spans) for spans in of.offsets(texts)]
