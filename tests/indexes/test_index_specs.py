"""Kinds of index by name and by factory string, and the check of a factory string before it is used."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.errors import ConfigError, StoreDamagedError
from ragembed.indexes.faiss_index.building import require_buildable
from ragembed.indexes.faiss_index.records import (
    AUTO,
    NAMES,
    TRAINING_PER_LIST,
    IndexSpec,
    lists_for,
    parse_spec,
)
from ragembed.indexes.storage import segments

DIM = 16

# name, family, lossless, refine factor
TABLE = [
    ("flat", "exhaustive", True, 1),
    ("fp16", "exhaustive", False, 2),
    ("sq8", "exhaustive", False, 2),
    ("hnsw", "graph", True, 1),
    ("hnsw-sq8", "graph", False, 2),
    ("ivf", "lists", True, 1),
    ("ivf-sq8", "lists", False, 2),
    ("ivf-pq", "lists", False, 8),
    ("SQ4", "exhaustive", False, 8),
    ("PCA64,Flat", "exhaustive", False, 8),
    ("HNSW16", "graph", True, 1),
    ("HNSW32,SQ8", "graph", False, 2),
    ("IVF65536_HNSW32,Flat", "lists", True, 1),
    ("OPQ48_192,IVF4096_HNSW32,PQ48x8", "lists", False, 8),
]
MALFORMED = [
    *("", "pq", "FLAT!", "Flat ", "Flat\n", "flat,", "ivf-pq8", "IVF4096,,PQ48", "IVF 4096,PQ48", "IVF4096;PQ48"),
    *("../IVF16", "IVF{lists},Flat", "İVF16,Flat"),
]


@pytest.mark.parametrize(("name", "family", "lossless", "refine_factor"), TABLE)
def test_properties_of_kinds(name, family, lossless, refine_factor):
    spec = parse_spec(name)
    assert (spec.name, spec.family, spec.lossless, spec.refine_factor) == (name, family, lossless, refine_factor)
    assert spec.named == (name in NAMES)


@pytest.mark.parametrize("text", MALFORMED)
def test_invalid_kind_raises_and_lists_valid_kinds(text):
    with pytest.raises(ConfigError) as caught:
        parse_spec(text)
    assert repr(text) in str(caught.value)
    assert all(name in str(caught.value) for name in (AUTO, *NAMES, "IVF4096,PQ48"))


@pytest.mark.parametrize("text", ["HNSW0", "HNSW1,Flat", "PQ4x0", "IVF4,PQ4x0", "IVF0,Flat", "RQ0x4", "PCA0,Flat"])
def test_factory_string_that_crashes_faiss_raises(text):
    with pytest.raises(ConfigError, match=text):
        parse_spec(text)


@pytest.mark.parametrize("name", NAMES)
def test_factory_string_depends_on_the_number_of_vectors(name):
    expected = {
        "flat": "Flat",
        "fp16": "SQfp16",
        "sq8": "SQ8",
        "hnsw": "HNSW32,Flat",
        "hnsw-sq8": "HNSW32,SQ8",
        "ivf": "IVF4000,Flat",
        "ivf-sq8": "IVF4000,SQ8",
        "ivf-pq": "IVF4000,PQ96",
    }
    assert parse_spec(name).factory(10**6, 384) == expected[name]


@given(st.integers(1, 10**9), st.integers(0, 10**6))
def test_every_list_has_enough_training_vectors(rows, more):
    lists = lists_for(rows)
    assert 1 <= lists <= max(1, 4 * math.sqrt(rows))
    assert lists == 1 or rows // lists >= TRAINING_PER_LIST
    assert lists <= lists_for(rows + more)


def test_invalid_kind_in_the_database_is_damage():
    assert segments.stored_spec("ivf-pq") == IndexSpec("ivf-pq")
    with pytest.raises(StoreDamagedError, match="names an index"):
        segments.stored_spec("no such kind")


# Checking factory strings


@pytest.mark.parametrize(
    "name",
    [
        *("Flat", "PCA8,Flat", "HNSW8", "HNSW8,SQ8", "IVF512,SQ8"),
        *("IVF8_HNSW8,Flat", "PCA8,IVF8,Flat", "OPQ4_8,IVF8,SQ8", "RR16,IVF8,SQfp16", "IVF100000,Flat"),
    ],
)
def test_usable_factory_string_passes_the_check(name):
    require_buildable(parse_spec(name), DIM)


@pytest.mark.parametrize(
    "name",
    [
        *("IVF16,Nonsense", "PQ17", "IVF16,PQ4x4fs", "IMI2x4,Flat", "NSG16,Flat", "IVF8,RQ2x4", "IDMap,Flat"),
        *("IVF8,SQ8,RFlat", "PCA8,HNSW8,Flat", "PQ8np", "LSH", "PQ4x20", "HNSW99999"),
    ],
)
def test_factory_string_whose_file_cannot_be_checked_is_unknown(name):
    with pytest.raises(ConfigError, match=f"unknown kind of index '{name}': expected auto, flat"):
        parse_spec(name)
