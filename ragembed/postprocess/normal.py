"""The quantile function of the normal distribution without SciPy, whose import would delay queries."""

from __future__ import annotations

from typing import Final

import numpy as np

from ragembed.types import Doubles

# Coefficients of AS 241, highest power first.
_CENTRE: Final = (
    (
        2509.0809287301226727,
        33430.575583588128105,
        67265.770927008700853,
        45921.953931549871457,
        13731.693765509461125,
        1971.5909503065514427,
        133.14166789178437745,
        3.3871328727963666080,
    ),
    (
        5226.4952788528545610,
        28729.085735721942674,
        39307.895800092710610,
        21213.794301586595867,
        5394.1960214247511077,
        687.18700749205790830,
        42.313330701600911252,
        1.0,
    ),
)
_TAIL: Final = (
    (
        7.74545014278341407640e-4,
        0.0227238449892691845833,
        0.241780725177450611770,
        1.27045825245236838258,
        3.64784832476320460504,
        5.76949722146069140550,
        4.63033784615654529590,
        1.42343711074968357734,
    ),
    (
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        0.0151986665636164571966,
        0.148103976427480074590,
        0.689767334985100004550,
        1.67638483018380384940,
        2.05319162663775882187,
        1.0,
    ),
)


def normal_quantile(shares: Doubles) -> Doubles:
    """Return the quantiles of the standard normal distribution at probabilities ``shares``, of any shape.

    Valid for probabilities from 1.4e-11 to 1 - 1.4e-11, with a relative error of about 1e-15. Source: Wichura 1988,
    algorithm AS 241 (PPND16), without its outermost range.
    """
    offset = shares - 0.5
    square = 0.180625 - offset * offset
    values: Doubles = offset * np.polyval(_CENTRE[0], square) / np.polyval(_CENTRE[1], square)
    outer = np.abs(offset) > 0.425
    lower = np.minimum(shares[outer], 1.0 - shares[outer])
    distance = np.sqrt(-np.log(lower)) - 1.6
    values[outer] = np.copysign(np.polyval(_TAIL[0], distance) / np.polyval(_TAIL[1], distance), offset[outer])
    return values
