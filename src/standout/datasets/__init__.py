"""Data to try things on: the embedded example, the factor model of the paper, and the paper's own data."""

from standout.datasets.cifar10 import load_cifar10
from standout.datasets.factor import FactorModel, FactorPopulation, FactorSample
from standout.datasets.images import Images
from standout.datasets.mice import Mice, load_mice
from standout.datasets.mnist import load_mnist
from standout.datasets.photographs import DigitsOverPhotographs, digits_over_photographs
from standout.datasets.tiles import DigitsOverTiles, digits_over_tiles

__all__ = [
    "DigitsOverPhotographs",
    "DigitsOverTiles",
    "FactorModel",
    "FactorPopulation",
    "FactorSample",
    "Images",
    "Mice",
    "digits_over_photographs",
    "digits_over_tiles",
    "load_cifar10",
    "load_mice",
    "load_mnist",
]
