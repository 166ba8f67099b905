"""The embedded example: handwritten digits on tiles of a photograph, both included in scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from standout._blas import Array
from standout.errors import MissingExtraError

_SIDE = 8


@dataclass(frozen=True)
class DigitsOverTiles:
    """Target tiles with a digit, background tiles without, and the digits.

    See Also
    --------
    standout.datasets.digits_over_tiles : Make these data.
    standout.plot.patterns : Plot of a pattern as an image.

    Examples
    --------
    >>> import numpy as np
    >>> from standout.datasets import digits_over_tiles
    >>> np.unique(digits_over_tiles().digit, return_counts=True)
    (array([6, 9]), array([181, 180]))
    """

    target: Array  # (361, 64)
    background: Array  # (n_background, 64)
    digit: NDArray[np.int64]  # (361,): 6 or 9


def digits_over_tiles(weight: float = 0.25, n_background: int = 3000, seed: int = 0) -> DigitsOverTiles:
    """Add scikit-learn's 8×8 sixes and nines to tiles of its photograph of a temple.

    Parameters
    ----------
    weight : float
        Weight of the digits. Digits and photograph range from 0 to 1.
    n_background : int
        Number of background tiles.
    seed : int
        Seed of the assignment of tiles.

    Returns
    -------
    DigitsOverTiles

    See Also
    --------
    standout.datasets.DigitsOverTiles : The result.
    standout.datasets.load_mice : Measured data, with replicates.
    standout.datasets.FactorModel : Simulated rows with a known solution.

    Examples
    --------
    >>> from standout.datasets import digits_over_tiles
    >>> example = digits_over_tiles()
    >>> example.target.shape, example.background.shape
    ((361, 64), (3000, 64))
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    chosen = np.isin(digits.target, (6, 9))
    images, tiles = digits.data[chosen] / 16.0, _tiles()
    order = np.random.default_rng(seed).permutation(len(tiles))
    target, background = order[: len(images)], order[len(images) : len(images) + n_background]
    return DigitsOverTiles(tiles[target] + weight * images, tiles[background], digits.target[chosen])


def _tiles() -> Array:
    """Return all disjoint 8×8 tiles of the greyscale photograph, as rows."""
    from sklearn.datasets import load_sample_image

    try:
        photograph = load_sample_image("china.jpg")
    except ImportError as error:
        raise MissingExtraError("the photograph needs pillow. Install it with: pip install 'standout[plot]'") from error
    gray = photograph.astype(np.float64) @ [0.299, 0.587, 0.114] / 255.0
    rows, columns = (size // _SIDE for size in gray.shape)
    tiles = gray[: rows * _SIDE, : columns * _SIDE].reshape(rows, _SIDE, columns, _SIDE)
    return np.asarray(tiles.transpose(0, 2, 1, 3).reshape(-1, _SIDE * _SIDE))
