"""The quantile post-processors beside scikit-learn's, in one process, taking turns."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import sklearn
from alternating import alternate
from sklearn.preprocessing import QuantileTransformer

from ragembed.postprocess import Chain


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Return by post-processor the seconds of both, and the greatest difference of what they give."""
    vectors = np.random.default_rng(request["seed"]).standard_normal((request["rows"], request["dim"]))
    vectors = vectors.astype(np.float32)
    told: dict[str, Any] = {"scikit-learn": sklearn.__version__}
    for spec, output in (("quantile-u", "uniform"), ("quantile-n", "normal")):
        chain = Chain([spec]).fit(vectors)
        theirs = QuantileTransformer(n_quantiles=1000, subsample=None, output_distribution=output).fit(vectors)
        difference = float(np.abs(chain.transform(vectors[:2000]) - theirs.transform(vectors[:2000])).max())
        calls = {"theirs": lambda t=theirs: t.transform(vectors), "ours": lambda c=chain: c.transform(vectors)}
        told[spec] = {"seconds": alternate(calls, request["turns"]), "difference": difference}
    return told


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
