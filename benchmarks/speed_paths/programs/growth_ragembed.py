"""Questions to a store in each mode, after as many others that are not measured."""

from __future__ import annotations

import json
import sys

from waiting import milliseconds

from ragembed.indexes import Store

_MODES = ("lexical", "dense", "hybrid")

if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    before, questions = request["questions"]
    taken = {}
    with Store.open(request["store"]) as store:
        for mode in _MODES:
            for asked in (before, questions):
                taken[mode] = milliseconds(asked, lambda question, mode=mode: store.search(question, mode=mode))
    print(json.dumps(taken))
