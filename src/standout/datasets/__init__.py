"""Example data: digits over tiles of a photograph, the paper's factor model, and protein expression of mice."""

from standout.datasets.factor import FactorModel, FactorPopulation, FactorSample
from standout.datasets.mice import Mice, load_mice
from standout.datasets.tiles import DigitsOverTiles, digits_over_tiles

__all__ = [
    "DigitsOverTiles",
    "FactorModel",
    "FactorPopulation",
    "FactorSample",
    "Mice",
    "digits_over_tiles",
    "load_mice",
]
