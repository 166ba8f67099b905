"""Data to try things on: the embedded example, and the factor model of the paper."""

from standout.datasets.factor import FactorModel
from standout.datasets.tiles import DigitsOverTiles, digits_over_tiles

__all__ = ["DigitsOverTiles", "FactorModel", "digits_over_tiles"]
