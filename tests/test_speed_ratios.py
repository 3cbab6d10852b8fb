"""The parts of benchmarks/speed.py that measure nothing: what is recorded, what counts as worse, and the page."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
OWN = ("speed_paths", "report", "collection", "environments", "contestants", "measure", "indexing")


@pytest.fixture(scope="module")
def speed():
    """The modules by name."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield lambda name: import_module(f"speed_paths.{name}")
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in [name for name in sys.modules if name.split(".")[0] in OWN]:
            del sys.modules[name]


@pytest.fixture
def score(speed):
    return speed("scores").Score


@pytest.fixture
def recorded(speed, score):
    """Records of one path of which more is better, and of one of which less is."""
    kept = [score("fast", 10.0), score("cheap", 0.1, more_is_better=False), score("p95", 50.0, 100.0, False, "ms")]
    return {one.path: speed("records").Record(one, "a part", "2026-11-22", "a processor") for one in kept}


@pytest.fixture
def compare(speed, recorded):
    def compared(*scores, processor="a processor", tolerance=0.25):
        return speed("regressions").compare(scores, recorded, tolerance, processor)

    return compared


@pytest.mark.parametrize(
    ("path", "value", "more_is_better", "worse"),
    [
        ("fast", 8.1, True, False),
        ("fast", 7.9, True, True),
        ("fast", 30.0, True, False),
        ("cheap", 0.124, False, False),
        ("cheap", 0.126, False, True),
        ("cheap", 0.01, False, False),
    ],
)
def test_a_ratio_is_worse_by_the_factor_that_it_lost(compare, score, path, value, more_is_better, worse):
    found = compare(score(path, value, more_is_better=more_is_better))
    assert bool(found.worse) == worse
    assert not found.notes


def test_the_sentence_names_path_ratios_day_and_tolerance(compare, score):
    [sentence] = compare(score("fast", 5.0)).worse
    assert sentence == "fast: 5.00 ×, recorded 10.0 × on 2026-11-22: worse by 100%, allowed are 25%"


def test_the_tolerance_can_be_chosen(compare, score):
    assert not compare(score("fast", 5.1), tolerance=1.0).worse
    assert compare(score("fast", 9.0), tolerance=0.05).worse


def test_figures_that_are_no_ratios_are_not_compared(compare, score):
    found = compare(score("p95", 5000.0, 100.0, more_is_better=False, unit="ms"))
    assert (found.worse, found.notes) == ([], [])


def test_another_processor_is_told_and_compared_all_the_same(compare, score):
    found = compare(score("fast", 5.0), processor="another")
    assert found.notes == ["the ratios were recorded on a processor, this is another: compared anyway"]
    assert len(found.worse) == 1


def test_a_path_without_a_record_is_told_and_is_no_failure(compare, score):
    found = compare(score("new", 2.0))
    assert (found.worse, found.notes) == ([], ["new: 2.00 ×, no ratio is recorded"])


@pytest.mark.parametrize(
    ("value", "goal", "more_is_better", "met"),
    [
        (6.0, 6.0, True, True),
        (5.9, 6.0, True, False),
        (0.03, 0.03, False, True),
        (0.1, 0.03, False, False),
        (1.0, None, True, None),
    ],
)
def test_a_goal_is_met_on_the_better_side_of_it(score, value, goal, more_is_better, met):
    assert score("a path", value, goal, more_is_better).met is met


def test_records_are_kept_and_those_of_a_part_are_replaced_whole(speed, score, recorded, tmp_path):
    records, file = speed("records"), tmp_path / "ratios.json"
    assert records.read(file) == {}
    records.write(list(recorded.values()), file)
    assert records.read(file) == recorded
    kept = records.replace({**recorded, "old": recorded["fast"]}, "another part", [score("one", 2.0)], "today", "this")
    records.write(kept, file)
    found = records.read(file)
    assert found["one"] == records.Record(score("one", 2.0), "another part", "today", "this")
    again = records.replace(found, "a part", [score("fast", 11.0)], "today", "this")
    assert sorted(one.score.path for one in again) == ["fast", "one"]


def test_a_part_that_is_measured_again_replaces_its_own_tables_alone(speed, score, tmp_path):
    page, records, file = speed("page"), speed("records"), tmp_path / "results.md"
    file.write_text("# Results\n\nanother section\n", encoding="utf-8")

    def record(part, value):
        return records.Record(score(f"{part}: ratio", value, 2.0, floor=0.25), part, "2026-11-22", "a processor")

    page.write_page("static", "### static, first", [record("static", 3.0)], file)
    page.write_page("encode", "### encode", [record("static", 3.0), record("encode", 1.5)], file)
    page.write_page("static", "### static, again", [record("static", 4.0), record("encode", 1.5)], file)
    written = file.read_text(encoding="utf-8")
    assert written.startswith("# Results\n\nanother section")
    assert "first" not in written
    assert written.index("| encode: ratio | 1.50 × | ≥ 2.00 × | **no** | 25 %") < written.index(
        "| static: ratio | 4.00 ×"
    )
    assert written.index("### encode") < written.index("### static, again")
    assert written.count("<!-- speed begin -->") == written.count("<!-- speed:static begin -->") == 1


def test_made_texts_are_different_and_those_of_fewer_are_the_first_of_more(speed):
    made = speed("made")
    sources = [" ".join(f"{letter}{number}" for number in range(20)) for letter in "abcdef"]
    many = list(made.made_texts(sources, 200, 8, seed=3))
    assert len({text for text, _ in many}) == 200
    assert many[:50] == list(made.made_texts(sources, 50, 8, seed=3))
    for text, pair in many:
        assert {word[0] for word in text.split()} == {sources[part][0] for part in pair}
    with pytest.raises(ValueError, match="give no 20 different texts"):
        list(made.made_texts(sources[:1], 20, 40, seed=0))


def test_the_floor_counts_the_operations_of_a_bert(speed, tmp_path):
    """One layer, d = 2, inner 4: 2 (4 · 4 + 2 · 2 · 4) = 64 a token, 4 · 2 · 9 = 72 of attention for a text of 3."""
    shape = '{"hidden_size": 2, "intermediate_size": 4, "num_hidden_layers": 1}'
    (tmp_path / "config.json").write_text(shape, encoding="utf-8")
    assert speed("limits").operations(tmp_path, [3]) == 3 * 64 + 72
