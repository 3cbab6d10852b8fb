import pytest

from ragembed.config.settings import PRESETS, EmbedderConfig
from ragembed.evaluation.table import (
    Result,
    columns,
    csv_rows,
    folded,
    labels,
    row_label,
    text_table,
    undefined_lines,
)


def result(value, name="minilm", collection="years", headline="spearman", scores=None, **changes):
    config = (EmbedderConfig.from_preset(name) if name in PRESETS else EmbedderConfig()).replace(
        **{"query_fit": "shared", **changes}
    )
    return Result(name, config, collection, {headline: value, **(scores or {})}, headline)


def test_rows_and_columns_of_the_table():
    results = [
        result(value, name, weighting=weighting, postprocess=steps)
        for name, values in (("bert", (61.31, 65.05, 68.7, 70)), ("re", (50.3, 55.6, 64.9, 5)))
        for value, (weighting, steps) in zip(
            values,
            [("uniform", ()), ("uniform", ("zscore",)), ("idf", ()), ("idf", ("quantile-u", "normalize"))],
            strict=True,
        )
    ]
    assert text_table(results).split("\n") == [
        "spearman, years",
        "",
        "                              bert    re",
        "avg.                          61.3  50.3",
        "avg. + zscore                 65.0  55.6",
        "idf                           68.7  64.9",
        "idf + quantile-u + normalize  70.0   5.0",
    ]


def test_undefined_results_are_shown_with_their_reason():
    undefined = {"spearman": None, "undefined": "all 3 predictions are equal"}
    results = [result(50.0, layers="1"), result(None, layers="-1", scores=undefined)]
    assert text_table(results).split("\n")[-1].split() == ["auto", "+", "normalize", "50.0", "undefined"]
    line = "undefined: years, minilm -1: auto + normalize: all 3 predictions are equal"
    assert list(undefined_lines(results)) == [line]
    averages = [result(50.0), result(None, collection="b", scores=undefined)]
    assert text_table(averages).split("\n")[-1].split()[-1] == "undefined"


@pytest.mark.parametrize("width", [20, 40, 60, 200])
def test_no_line_is_wider_than_the_terminal(width):
    results = [
        result(value, collection=collection, layers=layers)
        for collection in ("sts12", "sts13")
        for layers, value in (("1", 11.0), ("first+last", 12.0), ("2", 13.0))
    ]
    lines = text_table(results, width=width).split("\n")
    assert max(map(len, lines)) <= width
    text = " ".join(lines)
    assert [text.count(value) for value in ("11.0", "12.0", "13.0")] == [3, 3, 3]
    assert folded([["", "a" * 300], ["x", "1.0"]], 1, 40)[0].endswith("…")


def test_labels_show_query_fit_only_if_it_differs():
    one, two = result(1), result(2, query_fit="separate")
    assert labels([one, one]) == [row_label(one.config)] * 2
    assert labels([one, two]) == [f"{row_label(one.config)} (shared fit)", f"{row_label(one.config)} (separate fit)"]
    assert [line.split()[-1] for line in text_table([one, two]).split("\n")[3:]] == ["1.0", "2.0"]


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([result(1), result(2)], ["minilm", "minilm"]),
        ([result(1, "bert"), result(2, "t4")], ["bert", "t4"]),
        ([result(1, layers="1"), result(2, layers="first+last")], ["minilm 1", "minilm first+last"]),
        ([result(1, extractor="avg"), result(2, extractor="bert+avg:w=1")], ["avg", "bert+avg:w=1"]),
        (
            [result(1, "bert", extractor=e) for e in ("avg", "transformer")]
            + [result(1, "avg", extractor=e) for e in ("avg", "transformer")],
            ["bert avg", "bert transformer", "avg avg", "avg transformer"],
        ),
        ([result(1, template="t4"), result(2)], ["minilm t4", "minilm plain"]),
        ([result(1, pooling="cls"), result(2)], ["minilm cls", "minilm auto"]),
        (
            [result(1, special_tokens=True), result(1, special_tokens=False), result(2)],
            ["minilm with specials", "minilm without specials", "minilm specials by default"],
        ),
    ],
)
def test_columns_show_settings_that_differ(results, expected):
    assert columns(results) == expected


def test_csv_has_settings_scores_and_differences():
    difference = {"difference": -1.5, "low": -2.0, "high": -1.0, "p_value": 0.25}
    results = [
        result(50, scores={"pairs": 3, "run_accuracies": [1.0, 2.0]}, postprocess=("abtt:2", "normalize")),
        result(
            48.5,
            collection='a "b", c',
            scores={"pairs": 3, "difference_to_first": difference},
            weighting="-biases",
            biases=(",", "the"),
            postprocess=(),
        ),
    ]
    first, second = csv_rows(results)
    assert (first["postprocess"], second["postprocess"], second["biases"]) == ("abtt:2 normalize", "", ", the")
    assert (first["spearman"], first["pairs"], first["model"]) == (50, 3, EmbedderConfig().model)
    assert second["collection"] == 'a "b", c'
    assert second["difference_to_first"] == difference
    assert not {"difference_to_first", "run_accuracies"} & first.keys()
