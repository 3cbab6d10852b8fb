"""One indexing run and some searches on a cluster of one node. The script runs in a network namespace.

It prints the results as one line of JSON. Its arguments are a folder of documents and a folder of stores.
"""

import json
import sys
from pathlib import Path

import engine_scenarios
import search_scenarios
import store_scenarios
from cluster import cluster

if __name__ == "__main__":
    documents, stores = map(Path, sys.argv[1:])
    found = engine_scenarios.results([engine_scenarios.nobody_there])
    with cluster(1) as nodes:
        found["indexed"] = store_scenarios.indexed(documents, nodes.address, "ray", shards=2)
        found["members"] = store_scenarios.members(documents, nodes.address)
        sys.stdout.write("searches\n")
        found["same_answers"] = search_scenarios.same_answers([stores / "hnsw-sq8"], nodes.address, replicas=1)
    sys.stdout.write("\n" + json.dumps(found) + "\n")
