"""Gray images with their labels, and the counts by which a public collection of them is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from standout.errors import InputError


@dataclass(frozen=True)
class Images:
    """Gray images, what each of them shows, and which belong to the test set of their collection.

    Examples
    --------
    >>> import numpy as np
    >>> some = Images(np.zeros((3, 2, 2), np.uint8), np.array([6, 9, 6]), np.array([False, False, True]))
    >>> some.only([6]).is_test
    array([False,  True])
    """

    images: NDArray[np.uint8]  # (n, side, side)
    labels: NDArray[np.int64]  # (n,)
    is_test: NDArray[np.bool_]  # (n,)
    source: str = ""  # the files they were read from

    def only(self, labels: object) -> Images:
        """Return the images with these labels, in the order they have."""
        chosen = np.isin(self.labels, np.asarray(labels))
        return Images(self.images[chosen], self.labels[chosen], self.is_test[chosen], self.source)


def check_collection(found: Images, side: int, counts: Mapping[int, tuple[int, int]], what: str, remedy: str) -> Images:
    """Return the images if they are as large and as many as they should be.

    ``counts`` has the number of training and of test images of each label; ``what`` names the file.
    """
    n = len(found.labels)
    if found.images.dtype != np.uint8 or found.images.shape != (n, side, side) or found.is_test.shape != (n,):
        raise InputError(
            f"{what}: images of shape {found.images.shape} and type {found.images.dtype} for {n} labels, where "
            f"({n}, {side}, {side}) and uint8 were expected. {remedy}"
        )
    seen = {name: (_count(found, name, False), _count(found, name, True)) for name in np.unique(found.labels).tolist()}
    for label in sorted(seen.keys() | counts.keys()):
        here, known = seen.get(label, (0, 0)), counts.get(label, (0, 0))
        if here != known:
            raise InputError(
                f"{what}: {here[0]} training and {here[1]} test images of label {label}, where {known[0]} and "
                f"{known[1]} were expected. {remedy}"
            )
    return found


def _count(found: Images, label: int, test: bool) -> int:
    return int(np.sum((found.labels == label) & (found.is_test == test)))
