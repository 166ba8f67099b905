"""The experiments of the dPCA paper. Each one is a function from a plan to a record of what was measured.

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
