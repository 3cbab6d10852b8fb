"""The contents of plots: lines by layer and by w, heat maps of both, bars."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from ragembed.config.settings import PRESETS, EmbedderConfig
from ragembed.errors import ConfigError, MissingExtraError
from ragembed.evaluation.table import Result
from ragembed.papers.sentences import plots
from ragembed.papers.sentences.plots import check_plot, plot


def result(value, name="minilm", collection="years", **changes):
    config = (EmbedderConfig.from_preset(name) if name in PRESETS else EmbedderConfig()).replace(
        **{"query_fit": "shared", **changes}
    )
    return Result(name, config, collection, {"spearman": value}, "spearman")


@pytest.fixture
def draw(monkeypatch, tmp_path):
    """Draw results to a file and return the figure."""
    pytest.importorskip("matplotlib")
    figures, make = [], plots.new_figure

    def kept():
        figures.append(make())
        return figures[-1]

    monkeypatch.setattr(plots, "new_figure", kept)

    def call(results):
        file = tmp_path / "plot.png"
        plot(results, file)
        assert file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        return figures[-1]

    return call


def lines(figure):
    (axes,) = figure.axes
    return {line.get_label(): [list(data) for data in line.get_data()] for line in axes.get_lines()}


def test_by_layer(draw):
    results = [
        result(value, weighting=weighting, layers=layers, postprocess=())
        for weighting, values in (("uniform", (1, 2, 3)), ("idf", (4, 5, 6)))
        for layers, value in zip(("-1", "10", "2"), values, strict=True)
    ]
    figure = draw(results)
    assert lines(figure) == {"minilm: avg.": [[-1, 2, 10], [1, 3, 2]], "minilm: idf": [[-1, 2, 10], [4, 6, 5]]}
    assert figure.axes[0].get_xlabel() == "layer"
    assert figure.axes[0].get_ylabel() == "spearman"
    assert figure.get_suptitle() == "years"


def test_by_w_and_layer(draw):
    """As in figure 5 of the paper: layers on the x axis, single layers first, w on the y axis, a cross at the best."""
    grid = {("0", "1"): 1, ("0", "first+last"): 2, ("0", "2"): 9, ("1", "1"): 4, ("1", "first+last"): 5, ("1", "2"): 6}
    figure = draw([result(v, extractor=f"bert+avg:w={w}", layers=at, postprocess=()) for (w, at), v in grid.items()])
    axes, colours = figure.axes
    np.testing.assert_array_equal(axes.get_images()[0].get_array(), [[1, 9, 2], [4, 6, 5]])
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "first+last"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["0", "1"]
    cross, border = axes.get_lines()
    assert [list(data) for data in cross.get_data()] == [[1], [0]]
    assert list(border.get_xdata()) == [1.5, 1.5]
    assert colours.get_ylabel() == "spearman"


def bars(figure):
    return [one for one in figure.axes[0].containers if hasattr(one, "patches")]


def test_bars_by_row_and_column_of_the_table(draw):
    results = [
        result(1, "bert", postprocess=()),
        result(2, "bert", postprocess=("zscore",)),
        result(3, "avg", postprocess=("zscore",), weighting="uniform"),
    ]
    figure = draw(results)
    (axes,) = figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["avg.", "avg. + zscore"]
    found = {one.get_label(): [bar.get_width() for bar in one] for one in bars(figure)}
    assert found == {"bert": [1, 2], "avg": [3]}
    assert [text.get_text() for text in axes.texts] == ["1.0", "2.0", "3.0"]
    assert axes.get_legend() is None
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["bert", "avg"]


def test_bars_show_the_interval_of_the_mean(draw):
    """Runs of 10 and 30 have a deviation of 14.1, so that the 95 % interval of their mean is 1.96 · 10 wide."""
    runs = {"run_accuracies": [10.0, 30.0]}
    found = [
        Result("re", EmbedderConfig.from_preset("re"), "a", {"accuracy": 20.0, **runs}, "accuracy"),
        result(5, postprocess=()),
    ]
    assert plots.interval(found[0]) == pytest.approx((20 - 19.6, 20 + 19.6))
    figure = draw(found)
    low, high = bars(figure)[0].errorbar.lines[2][0].get_segments()[0][:, 0]
    assert (low, high) == (pytest.approx(0.4), pytest.approx(39.6))
    pairs = Result("re", EmbedderConfig.from_preset("re"), "a", {"spearman": 50.0, "pairs": 109}, "spearman")
    half = 1.96 * np.sqrt(0.01)
    assert plots.interval(pairs) == pytest.approx(tuple(100 * np.tanh(np.arctanh(0.5) + d) for d in (-half, half)))


def test_undefined_scores_are_not_drawn(draw):
    results = [result(np.nan if layers == "1" else 5.0, layers=layers, postprocess=()) for layers in ("1", "2", "3")]
    assert lines(draw(results)) == {"minilm: auto": [[2, 3], [5, 5]]}
    figure = draw([result(np.nan, postprocess=()), result(2, postprocess=("zscore",))])
    assert [bar.get_width() for bar in bars(figure)[0]] == [2]


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([result(1)], "nothing to plot: repeat --layers"),
        ([result(1), result(2, collection="b")], "nothing to plot"),
        (
            [result(1, extractor=e) for e in ("bert+avg:w=0", "bert+avg:w=1", "re")],
            "the extractor 're' has no value of w to plot",
        ),
    ],
)
def test_plot_errors_are_known_from_configurations(results, message, tmp_path):
    pytest.importorskip("matplotlib")
    candidates = [SimpleNamespace(name=one.name, config=one.config) for one in results]
    with pytest.raises(ConfigError, match=message):
        check_plot(candidates, tmp_path / "plot.png")
    with pytest.raises(ConfigError, match=message):
        plot(results, tmp_path / "plot.png")


def test_unwritable_file_is_detected_before_evaluation(tmp_path):
    pytest.importorskip("matplotlib")
    results = [result(1), result(2, weighting="idf")]
    for file, reason in ((tmp_path / "no" / "plot.png", "No such file"), (tmp_path, "Is a directory")):
        for call in (check_plot, plot):
            with pytest.raises(ConfigError, match=f"the plot .* cannot be written: {reason}"):
                call(results, file)


def test_without_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[papers\]'"):
        check_plot([result(1), result(2, weighting="idf")], tmp_path / "plot.png")
