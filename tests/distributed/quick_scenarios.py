"""A collection is written on a cluster of one node. The script runs in a network namespace.

It prints the results as one line of JSON. Its argument is a folder of documents.
"""

import json
import sys
from pathlib import Path

import engine_scenarios
import store_scenarios
from cluster import cluster

if __name__ == "__main__":
    documents = Path(sys.argv[1])
    found = engine_scenarios.results([engine_scenarios.nobody_there])
    with cluster(2) as nodes:
        found["written"] = store_scenarios.written(documents, nodes.address, "ray")
    sys.stdout.write("\n" + json.dumps(found) + "\n")
