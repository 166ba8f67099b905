"""The experiments of the dPCA paper. Each is a function that takes a plan and returns a record of its results.

They are not part of the installed package: run them from a clone with ``python -m experiments`` or ``make paper``.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Each name is a module of this package that defines a function of the same name.
EXPERIMENTS = {
    "digits": "Digits over photographs",
    "mice": "Proteins of mice",
    "runtime": "Run time against contrastive PCA",
    "optimality": "The factor model",
}
ALL = "all"
