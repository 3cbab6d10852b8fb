"""The quick scenarios, on one cluster of two nodes; run in a namespace.

Prints, as one line of JSON, what each found. The arguments are a folder of documents and one of stores.
"""

import json
import sys
from pathlib import Path

import engine_scenarios as engines
import search_scenarios as searches
import store_scenarios
from cluster import cluster

from ragembed.distributed.ray_workers import RayWorkers

if __name__ == "__main__":
    documents, stores = map(Path, sys.argv[1:])
    found = engines.results([engines.nobody_there])
    with cluster(1, 1) as nodes:
        with RayWorkers(nodes.address) as pool:
            quick = [engines.both_nodes, engines.an_error, engines.no_room]
            found |= engines.results(quick, pool)
        found["indexed"] = store_scenarios.indexed(documents, nodes.address, "ray")
        sys.stdout.write("searches\n")
        for scenario in (searches.same_answers, searches.a_store_that_is_written, searches.a_damaged_segment):
            found[scenario.__name__] = scenario(stores, nodes.address)
    sys.stdout.write("\n" + json.dumps(found) + "\n")
