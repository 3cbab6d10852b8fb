"""Searches on a cluster with failing actors and nodes. The scenarios run in a network namespace.

As a program, this file runs the slow scenarios and prints their results as one line of JSON. Its argument is a folder
of stores.
"""

import json
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import ray
from cluster import cluster

from ragembed.documents.model import Chunk
from ragembed.errors import RagembedError
from ragembed.indexes import ChunkRecord, RankingOptions, Store
from ragembed.indexes.search.ray_search import SegmentHost

QUERIES = ["the writer of a store", "shock wave", "zebra"]
FILTERS = [None, "third = 1", "i < 9", "i > 10000"]


def as_tuples(hits):
    return [(hit.id, hit.score, hit.dense, hit.lexical) for hit in hits]


def answers(store):
    """Return the results of many searches, by name."""
    found = {
        f"{query} {mode} {where}": as_tuples(store.search(query, 10, mode, where=where))
        for query in QUERIES
        for mode in ("hybrid", "dense", "lexical")
        for where in FILTERS
    }
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(130, store.status()["dim"])).astype(np.float32)
    found["vectors"] = [as_tuples(hits) for hits in store.search_vectors(vectors, 5)]
    found["many"] = [as_tuples(hits) for hits in store.search_many(QUERIES, 5)]
    found["mmr"] = as_tuples(store.search_mmr(QUERIES[0], 5, fetch_k=30))
    found["arranged"] = as_tuples(store.search(QUERIES[1], 5, ranking=RankingOptions(dedupe=True, per_file=2)))
    return found


def here(path):
    with Store.open(path) as store:
        return answers(store)


def differing(found, expected):
    return [name for name in expected if found[name] != expected[name]]


def actors(store):
    return [actor for group in store._reader._searcher._groups for actor in group.actors]


def process_of(actor):
    return ray.get(actor.__ray_call__.remote(lambda _host: os.getpid()))


def held(store):
    return sorted(
        name for actor in actors(store) for name in ray.get(actor.__ray_call__.remote(lambda host: list(host._held)))
    )


def folders(store):
    return sorted(segment["folder"] for segment in store.status()["segments"])


def same_answers(stores, address, replicas=2):
    found = {}
    for path in stores:
        with Store.open(path, engine="ray", address=address, replicas=replicas) as store:
            ours = answers(store)
            nodes = {ray.get(actor.__ray_call__.remote(lambda _host: node_id())) for actor in actors(store)}
            found[path.name] = {
                "differing": differing(ours, here(path)),
                "asked": len(ours),
                "actors": len(actors(store)),
                "nodes": len(nodes),
            }
    return found


def node_id():
    return ray.get_runtime_context().get_node_id()


def killed_actors(stores, address):
    """Kill half of the actors, then all of them, while two threads search."""
    path = stores / "flat"
    expected = here(path)
    queries = [name for name in expected if " dense " in name or " hybrid " in name]
    wrong, asked, stop = [], [], threading.Event()

    def ask():
        while not stop.is_set():
            for name in queries:
                query, mode, where = split(name)
                try:
                    same = as_tuples(store.search(query, 10, mode, where=where)) == expected[name]
                except RagembedError as error:
                    same = False
                    wrong.append(f"{type(error).__name__}: {error}")
                asked.append(name)
                if not same:
                    wrong.append(name)

    with Store.open(path, engine="ray", address=address, replicas=2) as store:
        store.search(QUERIES[0])
        first = actors(store)
        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for victims in (first[::2], first):
            time.sleep(1)
            for actor in victims:
                if actor in actors(store):
                    os.kill(process_of(actor), signal.SIGKILL)
            before = len(asked)
            while len(asked) < before + 40 and any(thread.is_alive() for thread in threads):
                time.sleep(0.05)
        stop.set()
        for thread in threads:
            thread.join()
        replaced = not set(first) & set(actors(store))
        differ = differing(answers(store), expected)
    return {"wrong": wrong[:5], "asked": len(asked) > 60, "replaced": replaced, "differing": differ}


def split(name):
    mode = next(mode for mode in ("hybrid", "dense", "lexical") if f" {mode} " in name)
    query, _, where = name.partition(f" {mode} ")
    return query, mode, None if where == "None" else where


def a_store_that_is_written(stores, address):
    """A reader on Ray sees the chunks that another process adds, deletes and merges."""
    path = stores.parent / "written"
    shutil.copytree(stores / "flat", path)
    found = {"differing": [], "held": []}
    with Store.open(path, engine="ray", address=address) as store, Store.open(path) as other:
        answers(store)
        first = process_of(actors(store)[0])
        for change in (
            lambda: other.add([ChunkRecord("new", Chunk("zebra of a new store", metadata={"i": 3, "third": 1}))]),
            lambda: other.delete([f"i{i}" for i in range(0, 240, 7)]),
            other.optimize,
        ):
            change()
            found["differing"] += differing(answers(store), here(path))
            found["held"].append(held(store) == folders(store))
        found["same_process"] = process_of(actors(store)[0]) == first
        found["new"] = store.search("zebra of a new store", 1)[0].id
    return found


class Dying(SegmentHost):
    """Ends its process at every search."""

    def search(self, asked, query):
        os._exit(1)


def actors_that_die_again_and_again(stores, address):
    with Store.open(stores / "flat", engine="ray", address=address) as store:
        searcher = store._reader._searcher
        searcher._host = ray.remote(Dying)
        try:
            store.search(QUERIES[0])
        except RagembedError as error:
            return [type(error).__name__, str(error)]
    return None


def a_damaged_segment(stores, address):
    path = stores.parent / "damaged"
    shutil.copytree(stores / "flat", path)
    file = next(path.glob("segments/*/index.faiss"))
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with Store.open(path, engine="ray", address=address) as store:
        try:
            store.search(QUERIES[0])
        except RagembedError as error:
            return [type(error).__name__, str(error)]
    return None


def stores_that_are_closed(stores, address):
    """All stores share one connection. A closed store reconnects at the next search."""
    path = stores / "flat"
    first = Store.open(path, engine="ray", address=address)
    expected = as_tuples(first.search(QUERIES[0]))
    second = Store.open(path, engine="ray", address=address)
    first.close()
    found = {"second": as_tuples(second.search(QUERIES[0])) == expected}
    gone = actors(second)
    second.close()
    found["connected"] = ray.is_initialized()
    found["again"] = as_tuples(second.search(QUERIES[0])) == expected
    found["other_actors"] = not set(gone) & set(actors(second))
    second.close()
    first.close()
    found["connected_at_the_end"] = ray.is_initialized()
    third = Store.open(path, engine="ray", address=address)
    third.search(QUERIES[0])
    ray.shutdown()
    try:
        third.search(QUERIES[0])
    except RagembedError as error:
        found["left"] = [type(error).__name__, str(error), ray.is_initialized()]
    third.close()
    found["after"] = as_tuples(third.search(QUERIES[0])) == expected
    third.close()
    return found


def a_lost_node(stores, address, nodes):
    path = stores / "flat"
    expected = here(path)
    with Store.open(path, engine="ray", address=address, replicas=2) as store:
        before = differing(answers(store), expected)
        nodes.remove_node(next(iter(nodes.worker_nodes)), allow_graceful=False)
        return {"before": before, "after": differing(answers(store), expected)}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    scenarios = [
        a_store_that_is_written,
        a_damaged_segment,
        killed_actors,
        actors_that_die_again_and_again,
        stores_that_are_closed,
    ]
    with cluster(2, 2) as nodes:
        found = {scenario.__name__: scenario(folder, nodes.address) for scenario in scenarios}
        found["same_answers"] = same_answers(sorted(folder.iterdir()), nodes.address)
        found["a_lost_node"] = a_lost_node(folder, nodes.address, nodes)
    sys.stdout.write(json.dumps(found) + "\n")
