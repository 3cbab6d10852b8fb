"""How notebooks show stores, hits and reports: small tables in which no text becomes markup."""

from __future__ import annotations

import re

import pytest

import ragembed
from ragembed.evaluation import Measured
from ragembed.indexes import Store, measure_drift
from ragembed.indexes.doctor import Diagnosis, Finding
from ragembed.indexes.integrity import Part, Problem, Report
from ragembed.indexes.types import Hits

HOSTILE = "lock <script>alert(1)</script>\x1b <b onclick=x>"


@pytest.fixture(scope="module")
def indexed(tmp_path_factory, tiny_config):
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "docs").mkdir()
    (folder / "docs" / "a <i>.md").write_text(HOSTILE)
    report = ragembed.index(folder / "docs", store=folder / "store <b>", embedder=tiny_config)
    return folder / "store <b>", report


def cells(shown: str) -> list[str]:
    """Return the cells of a table, after checking that it holds nothing but a table."""
    assert set(re.findall(r"<(\w+)", shown)) <= {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert "\x1b" not in shown
    return re.findall(r"<t[hd](?: [^>]*)?>(.*?)</t[hd]>", shown)


def test_stores_and_hits(indexed):
    path, report = indexed
    assert cells(report._repr_html_())[:2] == ["Files added", "1"]
    with Store.open(path) as store:
        assert cells(store._repr_html_())[:4] == ["Files", "1", "Chunks", "1"]
        assert "store &lt;b&gt;" in store._repr_html_()
        hits = store.search("lock", mode="lexical")
        assert isinstance(hits, Hits)
        assert isinstance(store.search_mmr("lock"), Hits)
        assert isinstance(store.search_vector(store.vectors([hits[0].id])[0]), Hits)
        shown = cells(hits._repr_html_())
        assert shown[:5] == ["", "Place", "Score", "Relevance", "Text"]
        assert shown[6] == "docs/a &lt;i&gt;.md:1-1"
        assert "&lt;b onclick=x&gt;" in shown[9]
        assert hits[0]._repr_html_() == hits._repr_html_()
        assert cells(measure_drift(store)._repr_html_())[0] == "Vectors"


def test_reports():
    finding = Finding("stale", "problem", HOSTILE, "", "ragembed index", 1, 0.5)
    assert cells(Diagnosis("store", 1, "0.1", (finding,))._repr_html_())[-1] == "ragembed index"
    problem = Report(problems=[Problem(Part.RAW, "segments/<x>", HOSTILE)], files=3)
    assert "segments/&lt;x&gt;" in cells(problem._repr_html_())
    assert cells(Measured({"spearman": 81.5, "by_source": {}}, "spearman")._repr_html_()) == ["spearman", "81.500"]
